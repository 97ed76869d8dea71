//! Orders, shards and batches, known ahead: torch's order bit for bit
