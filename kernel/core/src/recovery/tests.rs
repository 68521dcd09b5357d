//! Tests of recovery on mock machines.
