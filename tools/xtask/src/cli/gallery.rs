//! `cargo xtask gallery`.

use clap::Args;

use super::result::{self, check_file, write_file};
use dyad_launcher::config::{Json, OUTPUT};
use dyad_launcher::display::{Display, Verbosity};
use dyad_launcher::error::Error;
use dyad_launcher::launch::{Quiet, Sink};
use dyad_launcher::setup;
use dyad_measure::gallery;

#[derive(Debug, Args)]
pub(super) struct GalleryArgs {
    /// Programs of tests/programs/gallery [default: all]
    #[arg(value_name = "NAME")]
    names: Vec<String>,
    /// Write the table to this file as a page of the book; programs that are not named keep their rows
    #[arg(long, value_name = "FILE", help_heading = OUTPUT)]
    page: Option<String>,
    /// Print what the machines print
    #[arg(short, long, help_heading = OUTPUT)]
    verbose: bool,
    #[command(flatten)]
    json: Json,
}

pub(super) fn gallery(args: &GalleryArgs) -> Result<u8, Error> {
    result::open("gallery", &args.json)?;
    args.page.as_deref().map_or(Ok(()), check_file)?;
    let programs = gallery::chosen(&args.names)?;
    setup::ensure(&setup::Requirements::ALL, &mut super::say)?;
    let mut display: Box<dyn Sink> = match args.verbose {
        true => Box::new(Display::new(Verbosity::Verbose)),
        false => Box::new(Quiet),
    };
    let all = gallery::gallery(programs, &mut super::say, &mut *display)?;
    print!("{}", all.table());
    let json = result::write(&all.json());
    let problem = all.problem();
    // A page says what works.
    let page = match (&args.page, &problem) {
        (Some(file), None) => {
            let old = std::fs::read_to_string(file).unwrap_or_default();
            write_file(file, &all.page(&gallery::programs()?, &old))
        }
        _ => Ok(()),
    };
    json.and(page)?;
    problem.map_or(Ok(0), |why| Err(Error::Run(why)))
}
