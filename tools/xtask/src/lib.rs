//! The launcher and the command-line tool: what `cargo xtask` does, as a library.
//!
//! Other crates of the workspace use [`launch`] (to run systems in tests), [`build`] (to get
//! kernels and programs) and [`setup`] (to make sure that this computer has what is needed); the
//! command line itself is [`cli`].
#![forbid(unsafe_code)]

#[macro_use]
pub mod out;

pub mod apps;
pub mod archive;
pub mod ask;
pub mod bench;
pub mod broker;
pub mod build;
pub mod cli;
pub mod config;
pub mod console;
pub mod csv;
pub mod display;
pub mod error;
pub mod launch;
pub mod machine;
pub mod miri;
pub mod paths;
pub mod pools;
pub mod qemu_plugins;
pub mod setup;
pub mod signals;
pub mod sim;
pub mod size;
pub mod state;
pub mod suggest;
pub mod symbol;
pub mod test_times;
pub mod validate;
