//! `cargo xtask miri`.

use clap::Args;

use crate::miri;
use dyad_launcher::error::Error;

#[derive(Debug, Args)]
pub(super) struct MiriArgs {
    /// Crates, such as `ring` [default: all that Miri can run]
    #[arg(value_name = "CRATE")]
    crates: Vec<String>,
}

pub(super) fn miri(args: &MiriArgs) -> Result<u8, Error> {
    let named: Vec<&str> = args.crates.iter().map(String::as_str).collect();
    let crates = match named.is_empty() {
        true => &miri::CRATES[..],
        false => &named[..],
    };
    let report = miri::run(crates, &mut super::say)?;
    println!("miri: {report}");
    Ok(u8::from(report.failed != 0))
}
