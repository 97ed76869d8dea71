//! Jobs and the pipeline: fetch ahead, prepare, assemble
