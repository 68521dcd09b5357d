//! Type layouts, read from debugging information and compared.
//!
//! With one front end there is one computation of layouts, so nothing in a build depends on this.
//! It is the regression test of a weaker assumption that other parts lean on (host-side tools that
//! look into a program's memory, a fallback with two front ends): that the compiler lays out the
//! same types in the same way for both targets, the state machines of `async` functions included.
//! Rust does not promise it.

use gimli::{AttributeValue, DwAt, DwTag, EndianSlice, LittleEndian, constants as dw};
use goblin::elf::Elf;
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::fmt;

type Slice<'a> = EndianSlice<'a, LittleEndian>;
type Entry<'a> = gimli::DebuggingInformationEntry<Slice<'a>>;

/// The layouts of the types of one program. A name can stand for several layouts, such as closures
/// of one function.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TypeLayouts(BTreeMap<String, BTreeSet<String>>);

/// Debugging information that cannot be read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LayoutError(String);

impl fmt::Display for LayoutError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "type layouts cannot be read: {}", self.0)
    }
}

impl std::error::Error for LayoutError {}

impl From<gimli::Error> for LayoutError {
    fn from(e: gimli::Error) -> LayoutError {
        LayoutError(e.to_string())
    }
}

/// A type with two layouts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Difference {
    /// The type.
    pub name: String,
    /// Layouts that only the first program has.
    pub left: Vec<String>,
    /// Layouts that only the second program has.
    pub right: Vec<String>,
}

/// What a comparison has found.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Comparison {
    /// Types with equal layouts.
    pub same: usize,
    /// Coroutines and closures among them.
    pub same_coroutines: usize,
    /// Types with different layouts.
    pub different: Vec<Difference>,
    /// Types that only one of the programs has. They prove nothing: each target's `core` has some.
    pub unmatched: Vec<String>,
}

/// An entry of the debugging information, flattened.
struct Node {
    depth: isize,
    tag: DwTag,
    /// Qualified name.
    name: String,
    /// Last component of the name.
    short: String,
    /// Where in the section the entry of its type is.
    of: Option<usize>,
    numbers: String,
}

const NUMBERS: [(DwAt, &str); 8] = [
    (dw::DW_AT_byte_size, "size"),
    (dw::DW_AT_alignment, "align"),
    (dw::DW_AT_encoding, "encoding"),
    (dw::DW_AT_data_member_location, "at"),
    (dw::DW_AT_discr_value, "discriminant"),
    (dw::DW_AT_const_value, "value"),
    (dw::DW_AT_count, "count"),
    (dw::DW_AT_bit_size, "bits"),
];

fn is_type(tag: DwTag) -> bool {
    matches!(
        tag,
        dw::DW_TAG_structure_type
            | dw::DW_TAG_union_type
            | dw::DW_TAG_enumeration_type
            | dw::DW_TAG_base_type
            | dw::DW_TAG_array_type
            | dw::DW_TAG_pointer_type
    )
}

/// Entries below a type that are part of its layout.
fn is_part(tag: DwTag) -> bool {
    matches!(
        tag,
        dw::DW_TAG_member
            | dw::DW_TAG_variant_part
            | dw::DW_TAG_variant
            | dw::DW_TAG_enumerator
            | dw::DW_TAG_subrange_type
    )
}

fn number(value: AttributeValue<Slice<'_>>) -> Option<String> {
    match value {
        AttributeValue::Data16(n) => Some(n.to_string()),
        AttributeValue::Block(b) => Some(format!("{:02x?}", b.slice())),
        v => v
            .sdata_value()
            .map(|n| n as u64)
            .or(v.udata_value())
            .map(|n| n.to_string()),
    }
}

fn numbers(entry: &Entry<'_>) -> String {
    NUMBERS.iter().fold(String::new(), |mut out, (at, label)| {
        if let Some(n) = entry.attr_value(*at).and_then(number) {
            out.push_str(&format!(" {label}={n}"));
        }
        out
    })
}

impl TypeLayouts {
    /// Reads the layouts of all types in the debugging information of a linked program.
    ///
    /// # Errors
    ///
    /// If it is not an ELF file or has no usable debugging information.
    pub fn read(file: &[u8]) -> Result<TypeLayouts, LayoutError> {
        let elf = Elf::parse(file).map_err(|e| LayoutError(e.to_string()))?;
        let section = |id: gimli::SectionId| -> Result<&[u8], gimli::Error> {
            let header = elf
                .section_headers
                .iter()
                .find(|s| elf.shdr_strtab.get_at(s.sh_name) == Some(id.name()));
            Ok(header
                .and_then(|s| file.get(s.file_range()?))
                .unwrap_or_default())
        };
        let sections = gimli::DwarfSections::load(section)?;
        let dwarf = sections.borrow(|bytes| EndianSlice::new(bytes, LittleEndian));
        let mut units = Vec::new();
        // By offset in the section, because types of one unit can be named by another one.
        let mut names = HashMap::new();
        let mut headers = dwarf.units();
        while let Some(header) = headers.next()? {
            let unit = dwarf.unit(header)?;
            units.push(flatten(&dwarf, &unit, &mut names)?);
        }
        let mut layouts = TypeLayouts::default();
        for nodes in &units {
            for (i, node) in nodes.iter().enumerate() {
                if is_type(node.tag) {
                    layouts.add(&nodes[i..], &names);
                }
            }
        }
        match layouts.0.is_empty() {
            true => Err(LayoutError(
                "it describes no types (build with -g)".to_owned(),
            )),
            false => Ok(layouts),
        }
    }

    /// Adds the type that is the first of `nodes`, with what is below it.
    fn add(&mut self, nodes: &[Node], names: &HashMap<usize, String>) {
        let Some((head, below)) = nodes.split_first() else {
            return;
        };
        let target = |node: &Node| {
            let name = node.of.map(|of| names.get(&of).map_or("?", String::as_str));
            name.unwrap_or("()").to_owned()
        };
        let name = match head.tag {
            dw::DW_TAG_array_type => format!("[{}]", target(head)),
            _ => head.name.clone(),
        };
        if name.is_empty() {
            return;
        }
        let mut text = format!("{}{}", head.tag, head.numbers);
        if head.tag == dw::DW_TAG_pointer_type {
            text.push_str(&format!(" to {}", target(head)));
        }
        // Below this depth is something that is not part of the layout.
        let mut skip = isize::MAX;
        for node in below.iter().take_while(|n| n.depth > head.depth) {
            if node.depth > skip {
                continue;
            }
            skip = isize::MAX;
            if !is_part(node.tag) {
                skip = node.depth;
                continue;
            }
            let (tag, short, numbers) = (node.tag, &node.short, &node.numbers);
            text.push_str(&format!(" | {tag} {short}: {}{numbers}", target(node)));
        }
        self.0.entry(name).or_default().insert(text);
    }

    /// Compares the types that both programs have.
    pub fn compare(&self, other: &TypeLayouts) -> Comparison {
        let mut found = Comparison::default();
        for (name, left) in &self.0 {
            let Some(right) = other.0.get(name) else {
                found.unmatched.push(name.clone());
                continue;
            };
            if left == right {
                found.same += 1;
                let coroutine = ["async_fn_env", "async_block_env", "closure_env"];
                found.same_coroutines += usize::from(coroutine.iter().any(|c| name.contains(c)));
                continue;
            }
            found.different.push(Difference {
                name: name.clone(),
                left: left.difference(right).cloned().collect(),
                right: right.difference(left).cloned().collect(),
            });
        }
        let only_right = other.0.keys().filter(|n| !self.0.contains_key(*n));
        found.unmatched.extend(only_right.cloned());
        found
    }
}

fn flatten(
    dwarf: &gimli::Dwarf<Slice<'_>>,
    unit: &gimli::Unit<Slice<'_>>,
    names: &mut HashMap<usize, String>,
) -> Result<Vec<Node>, LayoutError> {
    let base = unit.header.offset().0;
    let mut nodes = Vec::new();
    // Qualified names of the entries that contain the current one.
    let mut path: Vec<(isize, String)> = Vec::new();
    let mut entries = unit.entries();
    while let Some(entry) = entries.next_dfs()? {
        let depth = entry.depth();
        while path.last().is_some_and(|(d, _)| *d >= depth) {
            path.pop();
        }
        let short = entry
            .attr_value(dw::DW_AT_name)
            .and_then(|v| dwarf.attr_string(unit, v).ok())
            .map(|s| s.to_string_lossy().into_owned())
            .unwrap_or_default();
        let outer = path.last().map_or("", |(_, n)| n.as_str());
        let name = match (entry.tag(), outer, short.as_str()) {
            (dw::DW_TAG_compile_unit, ..) => String::new(),
            (_, "", short) => short.to_owned(),
            (_, outer, "") => outer.to_owned(),
            (_, outer, short) => format!("{outer}::{short}"),
        };
        names.insert(base + entry.offset().0, name.clone());
        path.push((depth, name.clone()));
        let of = match entry.attr_value(dw::DW_AT_type) {
            Some(AttributeValue::UnitRef(o)) => Some(base + o.0),
            Some(AttributeValue::DebugInfoRef(o)) => Some(o.0),
            _ => None,
        };
        nodes.push(Node {
            depth,
            tag: entry.tag(),
            name,
            short,
            of,
            numbers: numbers(entry),
        });
    }
    Ok(nodes)
}
