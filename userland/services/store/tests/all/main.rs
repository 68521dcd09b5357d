//! Host tests of the store.

mod model;
mod stale;
