//! Tests of the whole model.

mod agree;
mod bench;
mod traces;
