//! `cargo xtask symbolize`: a raw console log, readable.

use std::io::Read;
use std::path::{Path, PathBuf};

use clap::Args;
use dyad_abi::Isa;

use dyad_launcher::config::Named;
use dyad_launcher::console::{Joiner, Line, Record, Splitter};
use dyad_launcher::display::{Display, Verbosity};
use dyad_launcher::error::Error;
use dyad_launcher::launch::{Event, Sink};
use dyad_launcher::symbol::Symboliser;
use dyad_launcher::{apps, build, paths};

#[derive(Debug, Args)]
pub(super) struct SymbolizeArgs {
    /// The log; standard input if not given
    log: Option<PathBuf>,
    /// ISA of the node that wrote it [default: from the .cmd file beside the log]
    #[arg(long, value_name = "ISA")]
    isa: Option<Named<Isa>>,
    /// Kernel image [default: the one built last]
    #[arg(long, value_name = "FILE")]
    kernel: Option<PathBuf>,
    /// Program, for addresses in user mode
    #[arg(long, value_name = "NAME")]
    app: Option<String>,
}

pub(super) fn symbolize(args: &SymbolizeArgs) -> Result<u8, Error> {
    let isa = isa(args)?;
    let kernel = args.kernel.clone().unwrap_or_else(|| {
        let (package, triple) = build::kernel_package(isa);
        let dir = paths::target_dir().join("kernel").join(triple);
        dir.join("kernel").join(package)
    });
    if !kernel.is_file() {
        return Err(Error::Usage(format!(
            "there is no kernel image {}: name one with --kernel FILE or build it with `cargo \
             xtask build`",
            kernel.display()
        )));
    }
    let program = args.app.as_deref().map(program_elf(isa)).transpose()?;
    let mut symbols = Symboliser::new([kernel].into_iter().chain(program.flatten()));
    let mut bytes = Vec::new();
    let read = match &args.log {
        Some(path) => std::fs::File::open(path).and_then(|mut f| f.read_to_end(&mut bytes)),
        None => std::io::stdin().read_to_end(&mut bytes),
    };
    read.map_err(|e| Error::Usage(format!("cannot read the log: {e}")))?;

    let node = node(args.log.as_deref());
    let mut display = Display::new(Verbosity::Verbose);
    let mut splitter = Splitter::default();
    let mut joiner = Joiner::default();
    let mut each = |bytes: &[u8]| {
        for line in Line::decode(bytes)
            .into_iter()
            .filter_map(|l| joiner.join(l))
        {
            show(&mut display, (node, isa), line, &mut symbols);
        }
    };
    splitter.push(&bytes, &mut each);
    splitter.finish(&mut each);
    for line in joiner.finish() {
        show(&mut display, (node, isa), line, &mut symbols);
    }
    Ok(0)
}

fn show(display: &mut Display, of: (usize, Isa), mut line: Line, symbols: &mut Symboliser) {
    let (node, isa) = of;
    if let Line::Record(Record::Backtrace { cpu, what, pcs }) = &line {
        let pcs = Record::addresses(pcs);
        let lines = match what.as_str() {
            // The code of a program that is not known.
            "invoked" => Symboliser::default().backtrace(&pcs, true),
            what => symbols.backtrace(&pcs, what == "user"),
        };
        display.event(Event::Backtrace {
            node,
            isa,
            title: &format!("{what} backtrace of cpu {cpu}"),
            lines: &lines,
        });
        return;
    }
    if let Line::Raw(text)
    | Line::Log { text, .. }
    | Line::Record(Record::Status { doing: text, .. }) = &mut line
    {
        *text = symbols.annotate(text);
    }
    display.event(Event::Line {
        node,
        isa,
        host: std::time::Duration::ZERO,
        line: &line,
    });
}

/// The node, from the name the launcher gives to logs.
fn node(log: Option<&Path>) -> usize {
    let stem = log.and_then(Path::file_stem).and_then(|s| s.to_str());
    let number = stem.and_then(|s| s.strip_prefix("node")?.parse().ok());
    number.unwrap_or(0)
}

fn isa(args: &SymbolizeArgs) -> Result<Isa, Error> {
    if let Some(Named(isa)) = args.isa {
        return Ok(isa);
    }
    // The launcher leaves the command line beside the log.
    let command = args.log.as_deref().map(|l: &Path| l.with_extension("cmd"));
    let text = command.and_then(|c| std::fs::read_to_string(c).ok());
    let found = text.and_then(|t| {
        let program = t.split_whitespace().next().unwrap_or_default().to_string();
        Isa::ALL.into_iter().find(|i| program.ends_with(i.name()))
    });
    found.ok_or_else(|| {
        Error::Usage(format!(
            "which ISA wrote this log? Say --isa {}",
            Isa::ALL.map(Isa::name).join(" or --isa ")
        ))
    })
}

/// ELF file of a program, as the pipeline has left it.
fn program_elf(isa: Isa) -> impl Fn(&str) -> Result<Option<PathBuf>, Error> {
    move |app| {
        let bundle = match apps::find(app)? {
            apps::Source::Bundle(path) => path,
            apps::Source::Package(dir) => {
                let name = dir
                    .file_name()
                    .unwrap_or_default()
                    .to_string_lossy()
                    .into_owned();
                let user = paths::target_dir().join("user");
                user.join(&name).join(format!("{name}.bundle"))
            }
        };
        Ok(apps::elfs_beside(&bundle)[isa.index()].clone())
    }
}
