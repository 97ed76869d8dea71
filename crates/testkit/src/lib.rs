//! Faulty servers and hostile inputs for the tests; not published
