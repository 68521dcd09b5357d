//! In-kernel tests.
