//! The launcher: builds kernels and programs, starts systems of machines, supervises them and says what came out.
//!
//! Tests use it as the command line does.
//!
//! | module | what for |
//! |---|---|
//! | [`config`] | options of a run: command line, files, checked |
//! | [`setup`] | what this computer has to have |
//! | [`build`], [`apps`], [`archive`], [`kept`] | kernels, services, programs; set aside for jobs |
//! | [`launch`] | a run: preparation, supervision, report |
//! | [`machine`], [`pools`], [`broker`], [`state`] | what a run consists of: emulators, shared memory, doorbells |
//! | [`ask`] | questions to a system that runs |
//! | [`console`], [`symbol`] | what machines print, decoded |
//! | [`sim`] | what is simulated, and what comes out |
//! | [`display`], [`mod@csv`], [`out`] | results for people and for programs |
//! | [`test_times`] | how long tests take |
//!
//! Measurements are made with it in `dyad-measure`; the command line is `xtask`.
#![forbid(unsafe_code)]

#[macro_use]
pub mod out;

pub mod apps;
pub mod archive;
pub mod ask;
pub mod broker;
pub mod build;
pub mod config;
pub mod console;
pub mod csv;
pub mod display;
pub mod error;
pub mod kept;
pub mod launch;
pub mod machine;
pub mod paths;
pub mod pools;
pub mod setup;
pub mod signals;
pub mod sim;
pub mod size;
pub mod state;
pub mod suggest;
pub mod symbol;
pub mod test_times;
