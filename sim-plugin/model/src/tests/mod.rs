//! Tests of the whole model.

mod agree;
mod traces;
