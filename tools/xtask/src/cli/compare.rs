//! `cargo xtask bench compare`.

use std::path::Path;

use clap::Args;
use dyad_abi::boot::{LOCAL_STRIDE, MAX_CXL};

use super::bench::Results as Printed;
use super::result::{self, check_file, write_file};
use super::shape::Shape;
use dyad_launcher::config::{Named, Names, OUTPUT, PoolSize, Settings, Whole};
use dyad_launcher::error::Error;
use dyad_launcher::paths;
use dyad_launcher::sim::Profile;
use dyad_measure::bench::faults::{self, Faults};
use dyad_measure::compare::{DEFAULT_TIMEOUT, Matrix, PROFILE, Placement, Results, System, runs};
use dyad_measure::npb::{Bench, Class};
use dyad_measure::sweep::{Rows, Table, make};
use dyad_sim_model::config::MemoryModel;

#[derive(Debug, Args)]
pub(super) struct CompareArgs {
    /// Size of the problem
    #[arg(long, value_name = "CLASS", default_value_t = Named(Class::S))]
    class: Named<Class>,
    /// Kernels of NPB [default: all]
    #[arg(long, value_name = "LIST", value_delimiter = ',')]
    only: Vec<Named<Bench>>,
    /// Systems [default: vanilla,tcp,ring,fused]
    #[arg(long, value_name = "LIST", value_delimiter = ',')]
    systems: Vec<Named<System>>,
    /// Memory models [default: separated,shared,fully-shared]
    #[arg(long, value_name = "LIST", value_delimiter = ',')]
    models: Vec<Named<MemoryModel>>,
    /// Where the phases of the program run
    #[arg(long, value_name = "HOW", default_value_t = Named(Placement::Alternate))]
    place: Named<Placement>,
    /// What things cost in simulated time: a profile or a file
    #[arg(long, value_name = "PROFILE", default_value = PROFILE)]
    profile: String,
    /// One kernel and one memory model, without parts of faults, to see that it works
    #[arg(long, conflicts_with_all = ["only", "models"])]
    quick: bool,
    /// Memory of each node's local pool [default: 256MiB, of class A 1GiB]
    #[arg(long, value_name = "SIZE")]
    mem_local: Option<PoolSize<LOCAL_STRIDE>>,
    /// Memory of the CXL pool [default: 512MiB]
    #[arg(long, value_name = "SIZE")]
    mem_cxl: Option<PoolSize<MAX_CXL>>,
    /// End each run after this many seconds
    #[arg(long, value_name = "SECS", default_value_t = Whole(DEFAULT_TIMEOUT))]
    timeout: Whole<1, { 7 * 24 * 3600 }>,
    /// The table of the runs, with which --resume goes on [default: target/compare.csv]
    #[arg(long, value_name = "FILE")]
    csv: Option<String>,
    /// Go on with a table that is there: make the runs that are missing or have failed
    #[arg(long)]
    resume: bool,
    /// Write the tables to this file as a page of the book, and the picture beside it
    #[arg(long, value_name = "FILE", help_heading = OUTPUT)]
    page: Option<String>,
    /// Write the picture to this file [default: beside the page; target/compare.svg]
    #[arg(long, value_name = "FILE", help_heading = OUTPUT)]
    svg: Option<String>,
    #[command(flatten)]
    pub(super) results: Printed,
}

/// What a list names, in the order of all there are, or the usual ones if it is empty.
fn chosen<T: Names + PartialEq>(list: &[Named<T>], usual: &[T]) -> Vec<T> {
    let is_chosen = |v: &T| match list.is_empty() {
        true => usual.contains(v),
        false => list.iter().any(|l| l.0 == *v),
    };
    let all = T::VARIANTS.iter().map(|v| v.0);
    all.filter(is_chosen).collect()
}

impl CompareArgs {
    fn matrix(&self) -> Matrix {
        Matrix {
            benches: match self.quick {
                true => vec![Bench::Is],
                false => chosen(&self.only, &Bench::ALL),
            },
            class: self.class.0,
            place: self.place.0,
            systems: chosen(&self.systems, &System::USUAL),
            models: match self.quick {
                true => vec![MemoryModel::Shared],
                false => chosen(&self.models, &MemoryModel::PAPER),
            },
        }
    }

    fn base(&self) -> Settings {
        let large = (self.class.0 == Class::A).then_some(PoolSize(1 << 30));
        Settings {
            app: Some("npb".into()),
            profile: Some(self.profile.clone()),
            mem_local: self.mem_local.or(large),
            mem_cxl: self.mem_cxl,
            timeout: Some(self.timeout),
            ..Settings::default()
        }
    }

    /// Where the picture goes.
    fn picture(&self) -> String {
        let beside = |page: &String| Path::new(page).with_extension("svg").display().to_string();
        let usual = || paths::shown(&paths::target_dir().join("compare.svg"));
        let svg = self.svg.clone();
        svg.or(self.page.as_ref().map(beside)).unwrap_or_else(usual)
    }

    /// What a fault costs over the transports and in the models that are compared.
    fn faults(&self, matrix: &Matrix) -> Result<Option<Faults>, Error> {
        let transports: Vec<_> = matrix
            .systems
            .iter()
            .filter_map(|s| s.transport())
            .collect();
        if self.quick || transports.is_empty() {
            return Ok(None);
        }
        println!("measuring what a fault costs");
        let plan = faults::Plan {
            models: matrix.models.clone(),
            transports,
            profile: Profile::load(&self.profile).map_err(Error::Usage)?,
            ..faults::Plan::default()
        };
        faults::faults(&plan, &mut self.results.display()).map(Some)
    }
}

pub(super) fn compare(args: &CompareArgs) -> Result<u8, Error> {
    result::open("bench", &args.results.json)?;
    let picture = args.picture();
    for file in args.page.iter().chain([&picture]) {
        check_file(file)?;
    }
    let matrix = args.matrix();
    let shape = Shape::default();
    let points = matrix.points(&args.base(), |settings| shape.finish(settings))?;
    let plan = runs(&points);
    let csv = args.csv.clone().unwrap_or_else(|| {
        let file = paths::target_dir().join("compare.csv");
        paths::shown(&file)
    });
    let mut table = Table::open(&csv, true, args.resume, &plan)?;
    let made = make(&plan, &mut table, "compare-", &mut super::say)?;
    let rows = Rows::read(Path::new(&csv))?;
    let faults = match made.is_complete() {
        true => args.faults(&matrix)?,
        false => None,
    };
    let problem = faults.as_ref().and_then(Faults::problem);
    let results = Results::of(&matrix, &points, &rows, faults);
    print!("{}", results.table());
    let mut outcome = made.outcome(&csv);
    let missing = results.missing();
    if missing > 0 {
        outcome += &format!("; {missing} points have no figures");
    }
    if let Some(why) = &problem {
        outcome += &format!("; cost of faults: {why}");
    }
    println!("{outcome}");
    write_file(&picture, &results.picture())?;
    println!("the picture is in {picture}");
    if let Some(page) = &args.page {
        let name = Path::new(&picture).file_name().unwrap_or_default();
        write_file(page, &results.page(page, &name.to_string_lossy(), &rows))?;
    }
    let ok = made.is_complete() && missing == 0 && problem.is_none();
    let mut document = results.json();
    if let serde_json::Value::Object(all) = &mut document {
        let more = serde_json::json!({
            "ok": ok, "failure": (!ok).then_some(outcome), "runs": plan.len(), "done": made.done,
            "skipped": made.skipped, "failed": made.failed, "csv": csv, "picture": picture,
        });
        if let serde_json::Value::Object(more) = more {
            all.extend(more);
        }
    }
    result::write(&document)?;
    match made.interrupted {
        true => Err(Error::Interrupted),
        false => Ok(u8::from(!ok)),
    }
}
