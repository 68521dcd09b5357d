//! All tests of this package, in one program: what they stand on is linked once.

mod common;
mod errors;
mod glossary;
mod machines;
mod matrices;
mod modules;
mod new;
mod pages;
mod recipes;
mod runs;
mod sensitivity;
mod setup;
mod sims;
mod tutorial;
