//! The driver: from a crate to `NAME.bundle` and one ELF per ISA, and nothing if nothing changed.
//!
//! ```text
//! out_dir/.front/              cargo's target directory, shared by all programs
//! out_dir/NAME/NAME.bundle     what kernels load
//! out_dir/NAME/NAME.ISA.elf    symbols and line tables for symbolising
//! out_dir/NAME/NAME.stamp      what the three were made from, written last
//! out_dir/NAME/.lock           held during a build
//! out_dir/NAME/unfinished/     a build in progress, or one that has failed
//! ```
//!
//! Cargo decides whether the front end has to run. The back ends run unless the stamp says that
//! they have already seen this IR with these tools and this version of the pipeline, and their
//! results are still there. Builds of the same program wait for each other; builds of different
//! programs share only cargo's directory, which cargo locks. Results appear by renaming, so nobody
//! ever reads half a file.

mod error;
mod stamp;
mod times;

pub use error::BuildError;
pub use stamp::Figures;
pub use times::StageTime;

use crate::align::{self, Plan};
use crate::codegen::{self, Door, Needs};
use crate::files::{self, FileError};
use crate::frontend::{self, PreLto, Source};
use crate::ir::NeutralIr;
use crate::link;
use crate::object::Object;
use crate::optimise::optimise;
use crate::spine::{self, Spine, SpineError, sites};
use crate::toolchain::Toolchain;
use crate::verify;
use crate::{bundle, bundle::Packed};
use dyad_abi::Isa;
use stamp::Stamp;
use std::fs::{File, TryLockError};
use std::path::{Path, PathBuf};
use times::{Clock, measure};

/// A step of a build.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stage {
    /// Waiting for another build of the same program.
    Waiting,
    /// Cargo and the compiler.
    FrontEnd,
    /// Putting the IR of all crates together.
    Join,
    /// Optimising all crates together.
    Optimise,
    /// Making the IR neutral.
    Ir,
    /// Making threads able to migrate.
    Spine,
    /// Compiling for each ISA.
    BackEnds,
    /// Laying out one address space.
    Align,
    /// Linking for each ISA.
    Link,
    /// Proving on machine code that threads can migrate.
    Verify,
    /// Checking that both programs are equal where they must be, and writing the bundle.
    Bundle,
}

impl Stage {
    /// A few words for progress displays.
    pub const fn text(self) -> &'static str {
        match self {
            Stage::Waiting => "waiting for another build of this program",
            Stage::FrontEnd => "compiling to IR",
            Stage::Join => "putting the IR of all crates together",
            Stage::Optimise => "optimising all crates together",
            Stage::Ir => "making the IR neutral",
            Stage::Spine => "making threads able to migrate",
            Stage::BackEnds => "compiling for each ISA",
            Stage::Align => "aligning",
            Stage::Link => "linking for each ISA",
            Stage::Verify => "verifying that threads can migrate",
            Stage::Bundle => "checking and bundling",
        }
    }
}

/// Progress to show to a user who waits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Progress<'a> {
    /// A step begins.
    Stage(Stage),
    /// Cargo or the compiler says something.
    Output(&'a str),
}

/// What to build.
#[derive(Clone)]
pub struct AppRequest<'a> {
    /// Directory of the program's manifest; it need not belong to this workspace.
    pub manifest_dir: PathBuf,
    /// Root of the workspace whose `rust-toolchain.toml` pins the tools.
    pub workspace_root: PathBuf,
    /// Where results go: `out_dir/NAME/`. Programs of one directory have different names.
    pub out_dir: PathBuf,
    /// Name of the binary and of the program; the package's name if not given.
    pub bin: Option<String>,
    /// Features of the crate to turn on.
    pub features: Vec<String>,
    /// Called as the build goes on.
    pub progress: &'a dyn Fn(Progress<'_>),
}

impl AppRequest<'_> {
    /// Builds the binary named like the package in `manifest_dir`, without features or progress
    /// reports.
    pub fn new(manifest_dir: &Path, workspace_root: &Path, out_dir: &Path) -> AppRequest<'static> {
        AppRequest {
            manifest_dir: manifest_dir.to_path_buf(),
            workspace_root: workspace_root.to_path_buf(),
            out_dir: out_dir.to_path_buf(),
            bin: None,
            features: Vec::new(),
            progress: &|_| (),
        }
    }
}

/// What a build did.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Report {
    /// Whether the results were there already.
    pub up_to_date: bool,
    /// What the stages took, in order.
    pub stages: Vec<StageTime>,
    /// What was found out about the program when it was built.
    pub figures: Figures,
}

/// A program that is ready to run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BuiltApp {
    /// Its name.
    pub name: String,
    /// What kernels load.
    pub bundle: PathBuf,
    /// Programs with symbols and line tables, by ISA index.
    pub elfs: [PathBuf; 2],
    /// What the build did.
    pub report: Report,
}

/// Builds a program, or finds that it is up to date.
///
/// # Errors
///
/// Everything that keeps the program from being built, with what can be done about it.
pub fn build_app(request: &AppRequest<'_>) -> Result<BuiltApp, BuildError> {
    let absolute = |dir: &Path| {
        std::path::absolute(dir).map_err(|e| BuildError::File(FileError::new("find", dir)(e)))
    };
    let manifest_dir = absolute(&request.manifest_dir)?;
    let workspace_root = absolute(&request.workspace_root)?;
    let out_dir = absolute(&request.out_dir)?;
    let name = match &request.bin {
        Some(name) => {
            frontend::check_name(name)?;
            name.clone()
        }
        None => frontend::package_name(&manifest_dir)?,
    };
    let dir = out_dir.join(&name);
    std::fs::create_dir_all(&dir).map_err(FileError::new("create", &dir))?;
    let clock = Clock::new(request.progress);
    let _lock = lock(&dir.join(".lock"), &clock)?;
    let tools = Toolchain::find(&workspace_root)?;

    clock.stage(Stage::FrontEnd);
    let source = Source {
        manifest_dir: &manifest_dir,
        bin: &name,
        features: &request.features,
        workspace_root: &workspace_root,
        target_dir: &out_dir.join(".front"),
    };
    let inputs = frontend::compile(&tools, &source, &mut |line| {
        (request.progress)(Progress::Output(line));
    })?;
    clock.stage(Stage::Join);
    let ir = inputs.join(&tools, &name)?;
    let outputs = Outputs::new(&dir, &name);
    let key = stamp::key(&tools, &name, &ir.bytes);
    let done = Stamp::read(&outputs.stamp).filter(|s| s.key == key && outputs.are_those_of(s));
    let up_to_date = done.is_some();
    let figures = match done {
        Some(stamp) => stamp.figures,
        None => back_ends(&tools, &dir.join("unfinished"), &outputs, &ir, key, &clock)?,
    };
    Ok(BuiltApp {
        name,
        bundle: outputs.bundle,
        elfs: outputs.elfs,
        report: Report {
            up_to_date,
            stages: clock.finish(),
            figures,
        },
    })
}

/// Waits until no other build works in this directory. The lock ends with the file, also when the
/// process is killed.
fn lock(path: &Path, clock: &Clock<'_>) -> Result<File, FileError> {
    let file = File::create(path).map_err(FileError::new("create", path))?;
    match file.try_lock() {
        Ok(()) => return Ok(file),
        Err(TryLockError::WouldBlock) => clock.stage(Stage::Waiting),
        Err(TryLockError::Error(e)) => return Err(FileError::new("lock", path)(e)),
    }
    file.lock().map_err(FileError::new("lock", path))?;
    Ok(file)
}

/// Where results go.
struct Outputs {
    name: String,
    bundle: PathBuf,
    elfs: [PathBuf; 2],
    stamp: PathBuf,
}

impl Outputs {
    fn new(dir: &Path, name: &str) -> Outputs {
        Outputs {
            bundle: dir.join(format!("{name}.bundle")),
            elfs: Isa::ALL.map(|isa| dir.join(format!("{name}.{isa}.elf"))),
            stamp: dir.join(format!("{name}.stamp")),
            name: name.to_owned(),
        }
    }

    /// Whether the files are there, unchanged since `stamp` was written.
    fn are_those_of(&self, stamp: &Stamp) -> bool {
        let hash = |path: &Path| std::fs::read(path).map(|b| files::content_hash(&b)).ok();
        hash(&self.bundle) == Some(stamp.bundle)
            && self
                .elfs
                .iter()
                .zip(stamp.elfs)
                .all(|(path, h)| hash(path) == Some(h))
    }
}

/// Files of one ISA in its working directory.
const APP: &str = "app";
const STUBS: &str = "stubs";

/// Runs `f` for both ISAs at once; there is a result by ISA index.
fn for_both<T: Send, E: Send>(f: impl Fn(Isa) -> Result<T, E> + Sync) -> Result<[T; 2], E> {
    let (x, a) = std::thread::scope(|scope| {
        let f = &f;
        let x = scope.spawn(move || f(Isa::X86_64));
        let a = f(Isa::Aarch64);
        (x.join(), a)
    });
    match x {
        Ok(x) => Ok([x?, a?]),
        Err(panic) => std::panic::resume_unwind(panic),
    }
}

fn back_ends(
    tools: &Toolchain,
    work: &Path,
    outputs: &Outputs,
    program: &PreLto,
    key: u64,
    clock: &Clock<'_>,
) -> Result<Figures, BuildError> {
    let stage = |s| clock.stage(s);
    // From here on there is nothing that belongs to the stamp.
    let _ = std::fs::remove_file(&outputs.stamp);
    files::fresh_dir(work)?;
    for isa in Isa::ALL {
        files::fresh_dir(&work.join(isa.name()))?;
    }
    stage(Stage::Optimise);
    let ir = optimise(tools, &outputs.name, program, work)?;
    stage(Stage::Ir);
    let neutral = NeutralIr::from_post_lto(&ir.text)?;
    stage(Stage::Spine);
    let spine = spine::transform(&neutral, work)?;
    let neutral = spine.as_ref().map_or(neutral, |s| s.ir.clone());
    let migrates = spine.is_some();
    stage(Stage::BackEnds);
    let timed = for_both(|isa| {
        let dir = work.join(isa.name());
        let (objects, wall, processor) = measure(|| objects(tools, &neutral, migrates, isa, &dir));
        objects.map(|o| (o, (wall, processor)))
    })?;
    clock.parts([timed[0].1, timed[1].1]);
    let objects = timed.map(|(objects, _)| objects);
    stage(Stage::Align);
    let [x, a] = &objects;
    let plan: Plan = align::plan([x, a]).map_err(|e| e.with_sources(&ir.text))?;
    stage(Stage::Link);
    let mut programs = for_both(|isa| {
        let inputs = [format!("{APP}.o"), format!("{STUBS}.o")];
        let inputs = [inputs[0].as_str(), inputs[1].as_str()];
        let (dir, script) = (work.join(isa.name()), plan.script(isa));
        link::link(tools, isa, &dir, &script, &inputs, "linked.elf")
    })?;
    let mut coverage = <[verify::Coverage; 2]>::default();
    if let Some(spine) = &spine {
        stage(Stage::Verify);
        coverage = migratable(spine, &mut programs)?;
        for (isa, program) in Isa::ALL.into_iter().zip(&programs) {
            files::write(&work.join(isa.name()).join("linked.elf"), program)?;
        }
    }
    stage(Stage::Bundle);
    let [x, a] = &programs;
    let packed: Packed = bundle::pack(&outputs.name, &plan, [x, a])?;
    let figures = Figures::of(&plan, &packed, &programs).with_spine(coverage);

    let bundle = work.join("bundle");
    files::write(&bundle, &packed.bytes)?;
    for (isa, path) in Isa::ALL.into_iter().zip(&outputs.elfs) {
        files::publish(&work.join(isa.name()).join("linked.elf"), path)?;
    }
    files::publish(&bundle, &outputs.bundle)?;
    let stamp = Stamp {
        key,
        bundle: files::content_hash(&packed.bytes),
        elfs: programs.map(|p| files::content_hash(&p)),
        figures: figures.clone(),
    };
    let text = work.join("stamp");
    files::write(&text, stamp.to_string().as_bytes())?;
    files::publish(&text, &outputs.stamp)?;
    // What is left helps with failures only.
    let _ = std::fs::remove_dir_all(work);
    Ok(figures)
}

/// Verifies both programs, and puts the table of sites into them.
fn migratable(
    spine: &Spine,
    programs: &mut [Vec<u8>; 2],
) -> Result<[verify::Coverage; 2], SpineError> {
    let [x, a] = &*programs;
    let [(sx, cx), (sa, ca)] = &for_both(|isa| {
        let file = &programs[isa.index()];
        let sites = sites::of_program(isa, file, spine)?;
        let coverage = verify::program(isa, file, &sites).map_err(SpineError::Verify)?;
        Ok::<_, SpineError>((sites, coverage))
    })?;
    let coverage = [*cx, *ca];
    let table = sites::table([x, a], [sx, sa], &spine.sites)?;
    for program in programs {
        sites::patch(program, &table)?;
    }
    Ok(coverage)
}

fn objects(
    tools: &Toolchain,
    neutral: &NeutralIr,
    migrates: bool,
    isa: Isa,
    dir: &Path,
) -> Result<Vec<Object>, BuildError> {
    let app = codegen::compile(tools, &neutral.for_isa(isa), dir, APP)?;
    let needs = Needs {
        service: Door::of(neutral),
        crossing: neutral.crosses(),
        strange: neutral.declares(codegen::STRANGE.name),
        migrates: match migrates {
            true => Some(sites::count_in_object(&app)?),
            false => None,
        },
    };
    let stubs = codegen::compile_stubs(tools, isa, needs, dir, STUBS)?;
    Ok(vec![
        Object::parse(isa, &format!("{APP}.o"), &app)?,
        Object::parse(isa, &format!("{STUBS}.o"), &stubs)?,
    ])
}
