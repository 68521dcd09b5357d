//! `cargo xtask sim`: what can be simulated, and what depends on it.

use clap::{Args, Subcommand};
use dyad_abi::Isa;
use dyad_sim_model::config::Level;

use super::sensitivity::{SensitivityArgs, sensitivity};
use dyad_launcher::build;
use dyad_launcher::display::{Display, Verbosity};
use dyad_launcher::error::Error;
use dyad_launcher::launch::Sink;
use dyad_launcher::sim::{self, Profile, Setup, System, profile, sanitizer};

#[derive(Debug, Args)]
pub(super) struct SimArgs {
    #[command(subcommand)]
    what: What,
}

#[derive(Debug, Subcommand)]
enum What {
    /// List all keys that --set and profiles know, with unit, range, and value
    Keys {
        /// Values of this profile [default: paper-big]
        #[arg(long, value_name = "NAME|FILE")]
        profile: Option<String>,
    },
    /// List the reads of shared words that may be stale, and why, from the kernels' images
    StaleReads,
    /// Print the profiles that are part of the tool, with the sources of their numbers
    Profiles {
        /// This one only
        name: Option<String>,
    },
    /// Run NPB without the simulator's extensions, with each and with all: which conclusions depend on them
    Sensitivity(SensitivityArgs),
}

pub(super) fn sim(args: &SimArgs) -> Result<u8, Error> {
    match &args.what {
        What::Keys { profile } => print_keys(profile.as_deref()),
        What::StaleReads => print_stale_reads(),
        What::Profiles { name } => print_profiles(name.as_deref()),
        What::Sensitivity(args) => sensitivity(args),
    }
}

fn print_stale_reads() -> Result<u8, Error> {
    let mut display = Display::new(Verbosity::Normal);
    let mut kernels = Vec::new();
    for isa in Isa::ALL {
        let mut progress = |said: build::Said<'_>| display.event(said.into());
        kernels.push((
            isa.name(),
            build::kernel(isa, build::Kernel::Listed, &mut progress)?,
        ));
    }
    let kernels: Vec<_> = kernels
        .iter()
        .map(|(isa, path)| (*isa, path.as_path()))
        .collect();
    print!("{}", sanitizer::list(&kernels).map_err(Error::Setup)?);
    Ok(0)
}

/// Prints all keys with the values of a profile.
pub(super) fn print_keys(name: Option<&str>) -> Result<u8, Error> {
    let profile = Profile::load(name.unwrap_or(profile::DEFAULT)).map_err(Error::Usage)?;
    let setup = Setup {
        profile,
        ..Setup::default()
    };
    let config = setup
        .resolve(Level::Timing, &System::default())
        .map_err(Error::Usage)?;
    print!("{}", sim::list_keys(&config));
    Ok(0)
}

fn print_profiles(name: Option<&str>) -> Result<u8, Error> {
    match name {
        None => {
            for (name, text) in profile::SHIPPED {
                println!("# --- {name} ---\n{text}");
            }
        }
        Some(name) => {
            let names = profile::SHIPPED.map(|(n, _)| n);
            let found = profile::SHIPPED.iter().find(|(n, _)| *n == name);
            let (_, text) = found.ok_or_else(|| {
                Error::Usage(dyad_launcher::suggest::not_one_of("profile", name, &names))
            })?;
            print!("{text}");
        }
    }
    Ok(0)
}
