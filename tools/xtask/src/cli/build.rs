//! `cargo xtask build`.

use clap::Args;
use dyad_abi::Isa;

use dyad_launcher::display::{Display, Verbosity};
use dyad_launcher::error::Error;
use dyad_launcher::launch::{Event, Sink};
use dyad_launcher::setup::{self, Requirements};
use dyad_launcher::{apps, build, paths};

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
    let mut progress = |said: build::Said<'_>| display.event(said.into());
    let names = if args.app.is_empty() && !args.ktest {
        apps::available()
    } else {
        args.app.clone()
    };
    let sources = names
        .iter()
        .map(|n| apps::find(n))
        .collect::<Result<Vec<_>, _>>()?;
    let (mut built, mut verified) = (Vec::new(), Vec::new());
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
    for (name, source) in names.iter().zip(&sources) {
        let program = build::app(source, &mut progress)?;
        built.push(program.path);
        verified.extend(program.verified.map(|what| format!("{name}: {what}")));
    }
    display.event(Event::Status(""));
    for path in built {
        display.event(Event::Note(&paths::shown(&path)));
    }
    for what in verified {
        display.event(Event::Note(&what));
    }
    Ok(0)
}
