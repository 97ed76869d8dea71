//! Where samples come from: directories, buckets, archives
