//! The rooms of this crate use each other in one direction only, and their modules use each other without circles.
//!
//! Every `use` and every path that begins with `crate`, `super` or `self` is an edge from the module it stands in to the
//! module it names. Code that is compiled for tests only does not count.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;

use syn::visit::{self, Visit};

/// Rooms, each before those that it may use.
const ROOMS: [&str; 4] = ["syscall", "run_loop", "migrate", "sched"];

type Module = Vec<String>;
type Edges = BTreeMap<Module, BTreeSet<Module>>;

/// The paths of a file that lead to modules of this crate.
struct Paths {
    here: Module,
    found: Vec<Module>,
}

impl Paths {
    fn note(&mut self, path: Vec<String>) {
        let mut at = match path.first().map(String::as_str) {
            Some("crate") => Module::new(),
            Some("self" | "super") => self.here.clone(),
            _ => return,
        };
        for part in path {
            match part.as_str() {
                "crate" | "self" => {}
                "super" => drop(at.pop()),
                _ => at.push(part),
            }
        }
        self.found.push(at);
    }

    fn tokens(&mut self, tokens: proc_macro2::TokenStream) {
        use proc_macro2::TokenTree::{Group, Ident, Punct};
        let mut path: Vec<String> = vec![];
        let mut colons = 0;
        for token in tokens {
            match token {
                Ident(name) if colons == 2 || path.is_empty() => path.push(name.to_string()),
                Ident(name) => {
                    self.note(std::mem::replace(&mut path, vec![name.to_string()]));
                }
                Punct(p) if p.as_char() == ':' => {
                    colons += 1;
                    continue;
                }
                Group(g) => {
                    self.note(std::mem::take(&mut path));
                    self.tokens(g.stream());
                }
                _ => self.note(std::mem::take(&mut path)),
            }
            colons = 0;
        }
        self.note(path);
    }

    fn tree(&mut self, before: &[String], tree: &syn::UseTree) {
        let with = |name: &syn::Ident| [before, &[name.to_string()]].concat();
        match tree {
            syn::UseTree::Path(p) => self.tree(&with(&p.ident), &p.tree),
            syn::UseTree::Name(n) => self.note(with(&n.ident)),
            syn::UseTree::Rename(r) => self.note(with(&r.ident)),
            syn::UseTree::Glob(_) => self.note(before.to_vec()),
            syn::UseTree::Group(g) => g.items.iter().for_each(|t| self.tree(before, t)),
        }
    }
}

/// Whether an item, a statement or a field is compiled for tests only.
fn is_test(attributes: &[syn::Attribute]) -> bool {
    attributes.iter().any(|a| match &a.meta {
        syn::Meta::List(l) if l.path.is_ident("cfg") => {
            let condition = l.tokens.to_string();
            !condition.contains("not") && (condition.contains("test") || condition.contains("host"))
        }
        _ => false,
    })
}

impl<'ast> Visit<'ast> for Paths {
    fn visit_item_use(&mut self, item: &'ast syn::ItemUse) {
        if !is_test(&item.attrs) {
            self.tree(&[], &item.tree);
        }
    }

    fn visit_item_mod(&mut self, item: &'ast syn::ItemMod) {
        if !is_test(&item.attrs) {
            visit::visit_item_mod(self, item);
        }
    }

    fn visit_expr_call(&mut self, call: &'ast syn::ExprCall) {
        if !is_test(&call.attrs) {
            visit::visit_expr_call(self, call);
        }
    }

    /// Paths within a macro's tokens: `crate`, `::`, name, and so on.
    fn visit_macro(&mut self, mac: &'ast syn::Macro) {
        self.tokens(mac.tokens.clone());
        visit::visit_macro(self, mac);
    }

    fn visit_path(&mut self, path: &'ast syn::Path) {
        self.note(path.segments.iter().map(|s| s.ident.to_string()).collect());
        visit::visit_path(self, path);
    }
}

/// All modules below a directory, with their files.
fn read(dir: &Path, module: &[String], all: &mut BTreeMap<Module, syn::File>) {
    for entry in fs::read_dir(dir).unwrap() {
        let path = entry.unwrap().path();
        let name = path.file_stem().unwrap().to_str().unwrap().to_owned();
        let inner = [module, std::slice::from_ref(&name)].concat();
        if path.is_dir() {
            read(&path, &inner, all);
        } else if path.extension().is_some_and(|e| e == "rs") {
            let at = if name == "mod" {
                module.to_vec()
            } else {
                inner
            };
            let file = syn::parse_file(&fs::read_to_string(&path).unwrap()).unwrap();
            assert!(all.insert(at, file).is_none(), "{path:?}: twice");
        }
    }
}

/// Which module uses which. The module that a path leads to is the longest beginning of the path that is a module.
fn edges() -> Edges {
    let mut files = BTreeMap::new();
    let src = Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
    read(&src, &[], &mut files);
    files.remove(["lib".to_owned()].as_slice());
    let mut edges = Edges::new();
    for (module, file) in &files {
        let mut paths = Paths {
            here: module.clone(),
            found: vec![],
        };
        paths.visit_file(file);
        let is_module = |path: &Module| {
            let longest = (1..=path.len()).rev().map(|n| &path[..n]);
            longest
                .into_iter()
                .find(|m| files.contains_key(*m))
                .map(<[_]>::to_vec)
        };
        edges.insert(
            module.clone(),
            paths.found.iter().filter_map(is_module).collect(),
        );
    }
    edges
}

/// The edges between the first `depth` names of modules, without those within a module and its children.
fn cut(edges: &Edges, depth: usize) -> Edges {
    let short = |m: &Module| m[..m.len().min(depth)].to_vec();
    let mut out = Edges::new();
    for (from, uses) in edges {
        let from = short(from);
        let others = uses.iter().map(short);
        let others = others.filter(|to| !to.starts_with(&from) && !from.starts_with(to));
        out.entry(from.clone()).or_default().extend(others);
    }
    out
}

/// All modules that a module uses, by whatever others.
fn reach(edges: &Edges, from: &Module) -> BTreeSet<Module> {
    let mut found = BTreeSet::new();
    let mut next = vec![from];
    while let Some(m) = next.pop() {
        for to in edges.get(m).into_iter().flatten() {
            if found.insert(to.clone()) {
                next.push(to);
            }
        }
    }
    found
}

#[test]
fn rooms_use_those_behind_them_only() {
    let edges = cut(&edges(), 1);
    let rank = |m: &Module| ROOMS.iter().position(|r| *r == m[0]);
    let mut uses = 0;
    for (from, to) in &edges {
        let at = rank(from);
        assert!(at.is_some(), "{from:?} is no room: see the table in lib.rs");
        for to in to.iter().filter(|to| rank(to).is_some()) {
            assert!(rank(to) > at, "{} uses {}", from[0], to[0]);
            uses += 1;
        }
    }
    assert_eq!(edges.len(), ROOMS.len());
    assert!(uses >= 5, "only {uses} uses have been found");
}

#[test]
fn modules_use_each_other_without_circles() {
    let edges = edges();
    for depth in 2..=4 {
        let edges = cut(&edges, depth);
        for module in edges.keys() {
            let round = reach(&edges, module);
            let circle = round.iter().filter(|m| reach(&edges, m).contains(module));
            let circle: Vec<_> = circle.map(|m| m.join("::")).collect();
            assert!(circle.is_empty(), "a circle: {circle:?}");
        }
    }
}

#[test]
fn paths_are_found_wherever_they_stand() {
    let text = "use crate::a::{b, c::d};
        fn f() { crate::e::g(); h!(x, super::i::j(\"\", [crate::k::l]) => 1 :: m); }
        #[cfg(test)] mod tests { use crate::n; }";
    let mut paths = Paths {
        here: vec!["here".into(), "there".into()],
        found: vec![],
    };
    paths.visit_file(&syn::parse_file(text).unwrap());
    let found: Vec<_> = paths.found.iter().map(|m| m.join("::")).collect();
    assert_eq!(found, ["a::b", "a::c::d", "e::g", "here::i::j", "k::l"]);
}
