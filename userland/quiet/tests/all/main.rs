//! Host tests of the library for memory without coherent caches.

mod heap;
mod loom_sections;
mod stale;
