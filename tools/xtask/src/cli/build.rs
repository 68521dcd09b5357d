//! `cargo xtask build`.

use clap::Args;
use dyad_abi::Isa;

use crate::display::{Display, Verbosity};
use crate::error::Error;
use crate::launch::{Event, Sink};
use crate::setup::{self, Requirements};
use crate::{apps, build, paths};

#[derive(Debug, Args)]
pub(super) struct BuildArgs {
    /// Build this program only (a name or a directory) [default: kernels, services and
    /// all programs]
    #[arg(long, value_name = "NAME")]
    app: Vec<String>,
    /// Build the kernels with the in-kernel tests, and no programs
    #[arg(long, conflicts_with = "app")]
    ktest: bool,
}

pub(super) fn build(args: &BuildArgs) -> Result<u8, Error> {
    setup::ensure(&Requirements::BUILD, &mut super::say)?;
    let mut display = Display::new(Verbosity::Normal);
    let mut progress = |text: &str| display.event(Event::Progress(text));
    let names = if args.app.is_empty() && !args.ktest {
        apps::available()
    } else {
        args.app.clone()
    };
    let sources = names
        .iter()
        .map(|n| apps::find(n))
        .collect::<Result<Vec<_>, _>>()?;
    let mut built = Vec::new();
    if args.app.is_empty() {
        let kind = match args.ktest {
            true => build::Kernel::Ktest,
            false => build::Kernel::Plain,
        };
        for isa in Isa::ALL {
            built.push(build::kernel(isa, kind, &mut progress)?);
        }
        if !args.ktest {
            let services = build::services(&mut progress)?;
            built.extend(services.into_iter().map(|s| s.path));
        }
    }
    for source in &sources {
        built.push(build::app(source, &mut progress)?.path);
    }
    display.event(Event::Status(""));
    for path in built {
        display.event(Event::Note(&paths::shown(&path)));
    }
    Ok(0)
}
