//! `cargo xtask validate-sim`.

use clap::Args;

use super::run::{check_files, write_json};
use crate::display::{Display, Verbosity};
use crate::error::Error;
use crate::launch::{Quiet, Sink};
use crate::validate::{self, Context, GROUPS, Group};
use crate::{setup, suggest};

#[derive(Debug, Args)]
pub(super) struct ValidateArgs {
    /// Shorter loads
    #[arg(long)]
    quick: bool,
    /// Make these groups of comparisons only [default: all]
    #[arg(long, value_name = "LIST", value_delimiter = ',')]
    groups: Vec<String>,
    /// Write the results to this file
    #[arg(long, value_name = "FILE")]
    json: Option<String>,
    /// Print all comparisons, not just those that fail
    #[arg(long)]
    all: bool,
    /// Print what the machines print
    #[arg(short, long)]
    verbose: bool,
}

fn groups(list: &[String]) -> Result<Vec<Group>, Error> {
    let names: Vec<&str> = GROUPS.iter().map(|g| g.name).collect();
    if let Some(word) = list.iter().find(|word| !names.contains(&word.as_str())) {
        return Err(Error::Usage(suggest::not_one_of("group", word, &names)));
    }
    let wanted = |g: &&Group| list.is_empty() || list.iter().any(|word| word == g.name);
    Ok(GROUPS.iter().filter(wanted).copied().collect())
}

pub(super) fn validate(args: &ValidateArgs) -> Result<u8, Error> {
    let groups = groups(&args.groups)?;
    check_files([args.json.as_deref()])?;
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
    if let Some(file) = &args.json {
        write_json(file, &findings.json())?;
    }
    match findings.problem() {
        None => Ok(0),
        Some(why) => Err(Error::Run(why)),
    }
}
