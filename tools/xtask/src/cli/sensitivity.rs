//! `cargo xtask sim sensitivity`.

use std::path::Path;

use clap::Args;
use dyad_abi::boot::{LOCAL_STRIDE, MAX_CXL};

use super::result;
use super::shape::Shape;
use dyad_launcher::config::{Json, Named, Names, PoolSize, Settings, Whole};
use dyad_launcher::error::Error;
use dyad_launcher::paths;
use dyad_measure::npb::{Bench, Class};
use dyad_measure::sensitivity::{Compared, DEFAULT_TIMEOUT, Matrix, Results, runs};
use dyad_measure::sweep::{Rows, Table, make};

#[derive(Debug, Args)]
pub(super) struct SensitivityArgs {
    /// Size of the problem
    #[arg(long, value_name = "CLASS", default_value_t = Named(Class::W))]
    class: Named<Class>,
    /// Kernels of NPB [default: all]
    #[arg(long, value_name = "LIST", value_delimiter = ',')]
    only: Vec<Named<Bench>>,
    /// What is compared: both (fused and multiple kernels), or the memory models over fused or over multiple kernels
    #[arg(long, value_name = "HOW", default_value_t = Named(Compared::Both))]
    kernels: Named<Compared>,
    /// Memory of each node's local pool [default: 256MiB]
    #[arg(long, value_name = "SIZE")]
    mem_local: Option<PoolSize<LOCAL_STRIDE>>,
    /// Memory of the CXL pool [default: 512MiB]
    #[arg(long, value_name = "SIZE")]
    mem_cxl: Option<PoolSize<MAX_CXL>>,
    /// End each run after this many seconds
    #[arg(long, value_name = "SECS", default_value_t = Whole(DEFAULT_TIMEOUT))]
    timeout: Whole<1, { 7 * 24 * 3600 }>,
    /// The table of the runs, with which --resume goes on [default: target/sensitivity.csv]
    #[arg(long, value_name = "FILE")]
    csv: Option<String>,
    /// Go on with a table that is there: make the runs that are missing or have failed
    #[arg(long)]
    resume: bool,
    /// The program
    #[arg(long, value_name = "NAME", default_value = "npb", hide = true)]
    app: String,
    #[command(flatten)]
    json: Json,
}

pub(super) fn sensitivity(args: &SensitivityArgs) -> Result<u8, Error> {
    result::open("sim", &args.json)?;
    let is_chosen = |b: &&Named<Bench>| args.only.is_empty() || args.only.contains(b);
    let benches = Bench::VARIANTS.iter().filter(is_chosen).map(|b| b.0);
    let matrix = Matrix {
        benches: benches.collect(),
        class: args.class.0,
        compared: args.kernels.0,
    };
    let base = Settings {
        app: Some(args.app.clone()),
        mem_local: args.mem_local,
        mem_cxl: args.mem_cxl,
        timeout: Some(args.timeout),
        ..Settings::default()
    };
    let shape = Shape::default();
    let points = matrix.points(&base, |settings| shape.finish(settings))?;
    let plan = runs(&points);
    let csv = args.csv.clone().unwrap_or_else(|| {
        let file = paths::target_dir().join("sensitivity.csv");
        paths::shown(&file)
    });
    let mut table = Table::open(&csv, true, args.resume, &plan)?;
    let made = make(&plan, &mut table, "sensitivity-", &mut super::say)?;
    let results = Results::of(&matrix, &points, &Rows::read(Path::new(&csv))?);
    print!("{}", results.table());
    let mut outcome = made.outcome(&csv);
    let missing = results.missing();
    if missing > 0 {
        outcome += &format!("; {missing} times are missing in the tables");
    }
    println!("{outcome}");
    let ok = made.is_complete() && missing == 0;
    let mut document = serde_json::json!({
        "schema": result::schema("sim"), "ok": ok, "failure": (!ok).then_some(outcome),
        "runs": plan.len(), "done": made.done, "skipped": made.skipped, "failed": made.failed, "csv": csv,
    });
    if let (Some(all), serde_json::Value::Object(more)) = (document.as_object_mut(), results.json())
    {
        all.extend(more);
    }
    result::write(&document)?;
    match made.interrupted {
        true => Err(Error::Interrupted),
        false => Ok(u8::from(!ok)),
    }
}
