//! `cargo xtask report`: every table and figure of five papers beside what this system measures, in one document.
//!
//! ```text
//!  rows ─▶ measurements ─▶ commands with --json ─▶ records ─▶ numbers ─▶ bounds ─▶ verdicts ─▶ HTML, JSON, CSV
//! ```
//!
//! | module | what for |
//! |---|---|
//! | [`rows`] | tables and figures of the papers: what the paper says, what measures the row, how numbers are read |
//! | [`measurements`] | the commands that measure, by size of the report |
//! | [`records`] | results of a command with a fingerprint and a digest |
//! | [`bounds`] | what numbers must be, from `bounds.toml` |
//! | [`verdict`] | what numbers and bounds say of a row |
//! | [`figure`] | lines and bars as SVG |
//! | [`document`] | rows with verdicts; JSON and CSV |
//! | [`html`] | the document for people |
//! | [`make`] | runs commands and keeps their results |
//!
//! A verdict is computed from a record and a bound, never entered by hand. A record that is missing, cut, edited or of another
//! commit makes its rows incomplete.
#![forbid(unsafe_code)]

pub mod bounds;
pub mod document;
pub mod figure;
pub mod glob;
pub mod html;
pub mod make;
pub mod measurements;
pub mod number;
pub mod records;
pub mod rows;
pub mod show;
pub mod verdict;
