//! From assembly to a linked program, and what the verifier says about it.

use crate::common::{TRIPLES, scratch, tools};
use dyad_abi::Isa;
use goblin::elf::Elf;
use migrate_rt::verify::{Conventions, Coverage, Finding, Signature, SiteAt, SpineInfo, program};
use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::process::Command;

/// What surrounds a fixture's body.
#[derive(Clone, Copy, Debug)]
pub enum Shape {
    /// The usual prologue and epilogue, with 32 bytes of slots below the frame record.
    Framed,
    /// Nothing. The number is the frame's size for the stack map.
    Bare(u64),
}

use Shape::{Bare, Framed};

/// A function. Lines of the body that start with `site` are calls with a site behind them; what follows the word
/// up to the next blank, behind a colon, are the scalars that the call passes.
pub struct Case {
    pub name: &'static str,
    pub shape: Shape,
    pub body: String,
    /// Kinds of findings, with spaces in between; none if it has to be accepted.
    pub finds: &'static str,
    /// If the verifier is told what calls pass and what the function gives back: the scalars of its result.
    pub gives: Option<&'static str>,
    /// Scalars that calls through pointers without a site pass, for each call.
    pub plain: Vec<&'static str>,
}

/// A case that has to be accepted.
pub fn case(name: &'static str, shape: Shape, body: &str) -> Case {
    Case {
        name,
        shape,
        body: body.to_owned(),
        finds: "",
        gives: None,
        plain: Vec::new(),
    }
}

/// The cases of a table. A line is one: its name, the kinds of findings, and the instructions of its body. A line
/// without bars goes on with the body before it. Behind the name come, in any order,
///
/// | words | meaning |
/// |---|---|
/// | `bare N` | the shape, if it is not [`Framed`] |
/// | `gives SCALARS` | see [`Case::gives`]; without it, what the whole table gives |
/// | `plain SCALARS ..` | see [`Case::plain`] |
fn table(text: &'static str, gives: Option<&'static str>) -> Vec<Case> {
    let mut cases: Vec<Case> = Vec::new();
    for line in text.lines().map(str::trim) {
        let columns: Vec<&str> = line.split('|').map(str::trim).collect();
        match columns[..] {
            [""] => {}
            [comment] if comment.starts_with("//") => {}
            [more] => {
                let body = &mut cases.last_mut().expect("a body to go on with").body;
                body.push(';');
                body.push_str(more);
            }
            [first, finds, body] => {
                let mut words = first.split(", ");
                let mut new = case(words.next().unwrap(), Framed, body);
                (new.finds, new.gives) = (finds, gives);
                for word in words {
                    match word.split_once(' ') {
                        Some(("bare", frame)) => new.shape = Bare(frame.parse().unwrap()),
                        Some(("gives", scalars)) => new.gives = Some(scalars),
                        Some(("plain", calls)) => new.plain = calls.split(' ').collect(),
                        _ => panic!("{line}: what is {word:?}?"),
                    }
                }
                cases.push(new);
            }
            _ => panic!("{line}: name, findings and body, with bars in between"),
        }
    }
    cases
}

/// Functions that fixtures call: `leaf` migrates; `plain` and `never` do not, and `never` does not
/// return; `reader` is a spine function that takes an argument in a register of `preserve_none`. Those of
/// [`TAKES`] take arguments of the C convention.
const HELPERS: [&str; 2] = [
    ".globl leaf\n.type leaf,@function\nleaf:\nretq\n.size leaf,.-leaf\n\
     .globl plain\n.type plain,@function\nplain:\nmovq $1, %rax\nretq\n.size plain,.-plain\n\
     .globl never\n.type never,@function\nnever:\njmp never\n.size never,.-never\n\
     .globl reader\n.type reader,@function\nreader:\nmovl (%r12), %eax\nretq\n.size reader,.-reader\n",
    ".globl leaf\n.type leaf,%function\nleaf:\nret\n.size leaf,.-leaf\n\
     .globl plain\n.type plain,%function\nplain:\nmov x0, #1\nret\n.size plain,.-plain\n\
     .globl never\n.type never,%function\nnever:\nb never\n.size never,.-never\n\
     .globl reader\n.type reader,%function\nreader:\nldr w0, [x20]\nret\n.size reader,.-reader\n",
];

/// Functions of the C convention, with the scalars that they take.
pub const TAKES: [(&str, &str); 7] = [
    ("word", "l"),
    ("byte", "b"),
    ("half", "i"),
    ("real", "d"),
    ("single", "f"),
    ("stacked", "llllllllll"),
    ("stacked_byte", "llllllb"),
];

fn signature(preserves_nothing: bool, arguments: &str, result: &str) -> Signature {
    Signature {
        preserves_nothing,
        arguments: arguments.to_owned(),
        result: result.to_owned(),
    }
}

impl Case {
    /// What the IR of the program would say of the case's calls.
    fn conventions(&self) -> Option<Conventions> {
        let gives = self.gives?;
        let mut functions: BTreeMap<String, Signature> = TAKES
            .iter()
            .map(|(name, takes)| (name.to_string(), signature(false, takes, "")))
            .collect();
        let others = [
            (self.name, true, "", gives),
            ("leaf", true, "", ""),
            ("reader", true, "l", "i"),
            ("plain", false, "", "l"),
            ("never", false, "", ""),
        ];
        for (name, none, takes, gives) in others {
            functions.insert(name.to_owned(), signature(none, takes, gives));
        }
        let lines = self.body.split(['\n', ';']).map(str::trim);
        let sites = lines.filter_map(|l| l.strip_prefix("site"));
        let passed = sites.map(|s| s.split(' ').next().unwrap().trim_start_matches(':'));
        let plain = self.plain.iter().map(|passed| signature(false, passed, ""));
        Some(Conventions {
            functions,
            sites: (0..).zip(passed.map(|p| signature(true, p, ""))).collect(),
            plain: match self.plain[..] {
                [] => BTreeMap::new(),
                _ => BTreeMap::from([(self.name.to_owned(), plain.collect())]),
            },
            broken: Vec::new(),
        })
    }

    fn frame(&self, isa: Isa) -> u64 {
        match (self.shape, isa) {
            (Bare(frame), _) => frame,
            (Framed, Isa::X86_64) => 40,
            (Framed, Isa::Aarch64) => 48,
        }
    }

    fn assembly(&self, isa: Isa) -> String {
        let name = self.name;
        let (prologue, epilogue) = match (self.shape, isa) {
            (Bare(_), _) => ("", ""),
            (Framed, Isa::X86_64) => (
                "pushq %rbp\nmovq %rsp, %rbp\nsubq $32, %rsp\n",
                "\naddq $32, %rsp\npopq %rbp\nretq\n",
            ),
            (Framed, Isa::Aarch64) => (
                "sub sp, sp, #48\nstp x29, x30, [sp, #32]\nadd x29, sp, #32\n",
                "\nldp x29, x30, [sp, #32]\nadd sp, sp, #48\nret\n",
            ),
        };
        let mut body = String::new();
        let mut sites = 0;
        for line in self.body.split(['\n', ';']).map(str::trim) {
            match line.strip_prefix("site").and_then(|l| l.split_once(' ')) {
                Some((_, call)) => {
                    body.push_str(&format!("{call}\n.globl {name}.{sites}\n{name}.{sites}:\n"));
                    sites += 1;
                }
                None => body.push_str(&format!("{line}\n")),
            }
        }
        let mark = if isa == Isa::X86_64 { '@' } else { '%' };
        format!(
            ".p2align 4\n.globl {name}\n.type {name},{mark}function\n{name}:\n{prologue}{body}{epilogue}\n\
             .size {name},.-{name}\n"
        )
    }
}

/// A linked program and its symbols.
pub struct Program {
    pub isa: Isa,
    pub path: PathBuf,
    pub file: Vec<u8>,
    pub symbols: BTreeMap<String, u64>,
}

impl Program {
    /// Assembles and links `cases` and what they call.
    pub fn new(isa: Isa, name: &str, cases: &[Case]) -> Program {
        let functions = cases.iter().map(|c| c.assembly(isa));
        let takes = TAKES.iter().map(|(name, _)| {
            let (mark, ret) = [('@', "retq"), ('%', "ret")][isa.index()];
            format!(".globl {name}\n.type {name},{mark}function\n{name}:\n{ret}\n.size {name},.-{name}\n")
        });
        let helpers = [HELPERS[isa.index()].to_owned()];
        let assembly: String = functions.chain(helpers).chain(takes).collect();
        Program::assemble(isa, name, &assembly)
    }

    /// Assembles and links `assembly`.
    pub fn assemble(isa: Isa, name: &str, assembly: &str) -> Program {
        let mut ir = format!("target triple = \"{}\"\n", TRIPLES[isa.index()]);
        for line in [".text"].into_iter().chain(assembly.lines()) {
            ir.push_str(&format!("module asm \"{line}\"\n"));
        }
        Program::compile(
            isa,
            name,
            &ir,
            &["-filetype=obj", "-mattr=+lse"][..1 + isa.index()],
        )
    }

    /// Compiles and links a module.
    pub fn compile(isa: Isa, name: &str, ir: &str, flags: &[&str]) -> Program {
        let (tools, dir) = (tools(), scratch(&format!("verify-{name}-{isa}")));
        std::fs::write(dir.join("in.ll"), ir).unwrap();
        let mut llc = Command::new(&tools.llc);
        llc.args(flags).args(["-o", "in.o", "in.ll"]);
        assert!(llc.current_dir(&dir).status().unwrap().success());
        let emulation = ["elf_x86_64", "aarch64elf"][isa.index()];
        let mut lld = Command::new(&tools.lld);
        lld.args([
            "-flavor",
            "gnu",
            "-m",
            emulation,
            "-static",
            "-e",
            "0",
            "-Ttext=0x41000000",
        ]);
        lld.args(["-o", "out.elf", "in.o"]);
        assert!(lld.current_dir(&dir).status().unwrap().success());
        let file = std::fs::read(dir.join("out.elf")).unwrap();
        let elf = Elf::parse(&file).unwrap();
        let symbols = elf
            .syms
            .iter()
            .map(|s| {
                (
                    elf.strtab.get_at(s.st_name).unwrap_or("").to_owned(),
                    s.st_value,
                )
            })
            .collect();
        Program {
            isa,
            path: dir.join("out.elf"),
            symbols,
            file,
        }
    }

    /// What the verifier is told about a case.
    pub fn spine(&self, case: &Case) -> SpineInfo {
        let sites = (0..).map_while(|i| self.symbols.get(&format!("{}.{i}", case.name)));
        SpineInfo {
            plain: Default::default(),
            functions: vec![case.name.to_owned(), "reader".to_owned()],
            leaves: vec!["leaf".to_owned()],
            sites: (0..)
                .zip(sites)
                .map(|(id, ret)| SiteAt {
                    id,
                    function: case.name.to_owned(),
                    ret: *ret,
                    frame: case.frame(self.isa),
                    targets: Vec::new(),
                })
                .collect(),
            conventions: case.conventions(),
        }
    }

    /// What the verifier says about a case.
    pub fn judge(&self, case: &Case) -> Result<Coverage, Vec<Finding>> {
        program(self.isa, &self.file, &self.spine(case)).map_err(|e| e.0)
    }
}

/// Verifies each case of a table, and compares.
pub fn check(isa: Isa, name: &str, text: &'static str) {
    check_all(isa, name, &table(text, None));
}

/// As [`check`], with what calls pass and what functions give back: nothing, unless the table says so.
pub fn check_conventions(isa: Isa, name: &str, text: &'static str) {
    check_all(isa, name, &table(text, Some("")));
}

fn check_all(isa: Isa, name: &str, cases: &[Case]) {
    let program = Program::new(isa, name, cases);
    let mut wrong = String::new();
    for case in cases {
        let found = program.judge(case).err().unwrap_or_default();
        let kinds: BTreeSet<String> = found.iter().map(|f| format!("{:?}", f.kind)).collect();
        let expected: BTreeSet<&str> = case.finds.split_whitespace().collect();
        if !kinds.iter().eq(&expected) {
            wrong.push_str(&format!("\n{}: expected {}, found", case.name, case.finds));
            found
                .iter()
                .for_each(|f| wrong.push_str(&format!("\n  {f}")));
        }
        // Whatever is found says where and what to do.
        for f in &found {
            assert!(
                !f.remedy().is_empty() && (f.va != 0) != f.instruction.is_empty(),
                "{f:?}"
            );
        }
    }
    assert!(wrong.is_empty(), "{wrong}");
}
