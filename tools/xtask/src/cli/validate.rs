//! `cargo xtask validate-sim`.

use clap::Args;

use super::result;
use dyad_launcher::config::Json;
use dyad_launcher::display::{Display, Verbosity};
use dyad_launcher::error::Error;
use dyad_launcher::launch::{Quiet, Sink};
use dyad_launcher::setup;
use dyad_measure::validate::{self, Context, GROUPS, Group};

#[derive(Debug, Args)]
pub(super) struct ValidateArgs {
    /// Shorter loads
    #[arg(long)]
    quick: bool,
    /// Make these groups of comparisons only [default: all]
    #[arg(long, value_name = "LIST", value_delimiter = ',', value_parser = names())]
    groups: Vec<String>,
    #[command(flatten)]
    json: Json,
    /// Print all comparisons, not just those that fail
    #[arg(long)]
    all: bool,
    /// Print what the machines print
    #[arg(short, long)]
    verbose: bool,
}

fn names() -> clap::builder::PossibleValuesParser {
    GROUPS
        .iter()
        .map(|group| group.name)
        .collect::<Vec<_>>()
        .into()
}

fn groups(list: &[String]) -> Vec<Group> {
    let wanted = |g: &&Group| list.is_empty() || list.iter().any(|word| word == g.name);
    GROUPS.iter().filter(wanted).copied().collect()
}

pub(super) fn validate(args: &ValidateArgs) -> Result<u8, Error> {
    result::open("validate-sim", &args.json)?;
    let groups = groups(&args.groups);
    setup::ensure(&setup::Requirements::ALL, &mut super::say)?;
    let mut plugins = None;
    for group in &groups {
        plugins = plugins.or(group.needs.ensure(&mut super::say)?);
    }
    let mut sink: Box<dyn Sink> = match args.verbose {
        true => Box::new(Display::new(Verbosity::Verbose)),
        false => Box::new(Quiet),
    };
    let mut cx = Context {
        quick: args.quick,
        plugins: plugins.as_ref(),
        say: &mut super::say,
        sink: &mut *sink,
    };
    let findings = validate::validate(&groups, &mut cx)?;
    print!("{}", findings.table(args.all));
    result::write(&findings.json())?;
    match findings.problem() {
        None => Ok(0),
        Some(why) => Err(Error::Run(why)),
    }
}
