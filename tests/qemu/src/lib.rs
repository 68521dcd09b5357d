//! Tests that need the real pair of machines; see `tests/qemu/main.rs`.
#![forbid(unsafe_code)]
