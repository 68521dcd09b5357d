//! Profiles: named sets of values for all keys. Five are part of the tool; a file can be one too.
//!
//! A profile is a TOML file whose keys, joined by dots, are those of [`super::keys`]. A file may
//! leave keys out; `based-on` names the profile they are taken from.

use std::path::Path;

use crate::suggest;

/// Used unless told otherwise, and what files are based on unless they say otherwise.
pub const DEFAULT: &str = "paper-big";

/// The profiles that are part of the tool: name, contents.
pub const SHIPPED: [(&str, &str); 5] = [
    ("paper-big", include_str!("../../profiles/paper-big.toml")),
    (
        "paper-small",
        include_str!("../../profiles/paper-small.toml"),
    ),
    ("artifact", include_str!("../../profiles/artifact.toml")),
    ("cxl", include_str!("../../profiles/cxl.toml")),
    (
        "cascade-lake",
        include_str!("../../profiles/cascade-lake.toml"),
    ),
];

/// Key of a file that names the profile below it.
const BASED_ON: &str = "based-on";
/// How many profiles may lie below each other.
const MAX_DEPTH: usize = 8;

/// Values from one source.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Layer {
    /// Where they are from, for messages.
    pub source: String,
    /// Whether values for nodes that the system does not have are a mistake.
    pub strict: bool,
    /// Keys with their values, as they were written.
    pub entries: Vec<(String, String)>,
}

/// A profile with all that it is based on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Profile {
    /// Its name, or the file's.
    pub name: String,
    /// Its values; a later layer takes precedence.
    pub layers: Vec<Layer>,
}

impl Default for Profile {
    fn default() -> Profile {
        Profile::load(DEFAULT).expect("the profiles of the tool are well-formed")
    }
}

impl Profile {
    /// The profile with this name, or in this file.
    ///
    /// # Errors
    ///
    /// A sentence.
    pub fn load(name: &str) -> Result<Profile, String> {
        let mut layers = Vec::new();
        let mut next = Some(name.to_string());
        let mut chain: Vec<String> = Vec::new();
        while let Some(name) = next {
            if chain.len() == MAX_DEPTH {
                return Err(format!(
                    "profile {:?}: {BASED_ON} goes on and on: {}",
                    chain[0],
                    chain.join(", ")
                ));
            }
            let (text, shipped) = text_of(&name, chain.last().map(Path::new))?;
            let table: toml::Table = text
                .parse()
                .map_err(|e| format!("profile {name}: not valid TOML: {e}"))?;
            let (mut entries, mut below) = (Vec::new(), None);
            for (key, value) in flatten(&table).map_err(|e| format!("profile {name}: {e}"))? {
                match key == BASED_ON {
                    true => below = Some(value),
                    false => entries.push((key, value)),
                }
            }
            layers.push(Layer {
                source: format!("profile {name}"),
                strict: false,
                entries,
            });
            next = below.or((!shipped).then(|| DEFAULT.to_string()));
            chain.push(match shipped {
                true => name,
                // Relative to the file that names it.
                false => resolve(&name, chain.last().map(Path::new)),
            });
        }
        layers.reverse();
        Ok(Profile {
            name: name.to_string(),
            layers,
        })
    }
}

/// The file that a name means, seen from another file.
fn resolve(name: &str, from: Option<&Path>) -> String {
    match from.and_then(Path::parent) {
        Some(dir) => dir.join(name).display().to_string(),
        None => name.to_string(),
    }
}

fn text_of(name: &str, from: Option<&Path>) -> Result<(String, bool), String> {
    if let Some((_, text)) = SHIPPED.iter().find(|(n, _)| *n == name) {
        return Ok((text.to_string(), true));
    }
    let path = resolve(name, from);
    let names_file = name.contains('/') || name.ends_with(".toml");
    if !names_file && !Path::new(&path).exists() {
        let names = SHIPPED.map(|(n, _)| n);
        return Err(format!(
            "{}; or name a file, such as ./{name}.toml",
            suggest::not_one_of("profile", name, &names)
        ));
    }
    let text = std::fs::read_to_string(&path)
        .map_err(|e| format!("cannot read the profile {path}: {e}"))?;
    Ok((text, false))
}

/// Keys of a TOML table and the tables in it, joined by dots, with their values as text.
///
/// # Errors
///
/// If a value is neither text nor a number.
pub fn flatten(table: &toml::Table) -> Result<Vec<(String, String)>, String> {
    let mut all = Vec::new();
    collect("", table, &mut all)?;
    Ok(all)
}

fn collect(
    prefix: &str,
    table: &toml::Table,
    all: &mut Vec<(String, String)>,
) -> Result<(), String> {
    for (key, value) in table {
        let key = match prefix {
            "" => key.clone(),
            _ => format!("{prefix}.{key}"),
        };
        let text = match value {
            toml::Value::Table(inner) => {
                collect(&key, inner, all)?;
                continue;
            }
            toml::Value::String(text) => text.clone(),
            toml::Value::Integer(n) => n.to_string(),
            toml::Value::Float(n) => n.to_string(),
            other => {
                return Err(format!(
                    "{key} must be a number or a string, not {}",
                    other.type_str()
                ));
            }
        };
        all.push((key, text));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::super::keys::{KEYS, Place, Scope, find};
    use super::*;

    #[test]
    fn shipped_profiles_say_everything_themselves() {
        for (name, _) in SHIPPED {
            let profile = Profile::load(name).unwrap();
            assert_eq!(profile.layers.len(), 1, "{name}");
            let entries = &profile.layers[0].entries;
            for key in KEYS.iter().filter(|k| !matches!(k.place, Place::Fixed(_))) {
                for isa in 0..2 {
                    let given = entries.iter().any(|(text, _)| {
                        let (keys, _, scope) = find(text).unwrap();
                        let for_isa = scope == Scope::All || scope == Scope::Isa(isa);
                        for_isa && keys.iter().any(|k| k.name == key.name)
                    });
                    assert!(given, "{name}: {} of ISA {isa}", key.name);
                }
            }
        }
    }

    #[test]
    fn files_are_based_on_others() {
        let dir = std::env::temp_dir().join(format!("dyad-profile-{}", std::process::id()));
        std::fs::create_dir_all(&dir).unwrap();
        let write = |name: &str, text: &str| {
            std::fs::write(dir.join(name), text).unwrap();
            dir.join(name).display().to_string()
        };
        write("low.toml", "based-on = \"artifact\"\nl2.ways = 8\n");
        let top = write("top.toml", "based-on = \"low.toml\"\n[arm]\nghz = 1.5\n");
        let profile = Profile::load(&top).unwrap();
        let sources: Vec<&str> = profile.layers.iter().map(|l| l.source.as_str()).collect();
        assert_eq!(sources[0], "profile artifact");
        assert!(sources[1].ends_with("low.toml") && sources[2].ends_with("top.toml"));
        assert_eq!(
            profile.layers[2].entries,
            [("arm.ghz".to_string(), "1.5".to_string())]
        );
        let alone = write("alone.toml", "");
        let profile = Profile::load(&alone).unwrap();
        assert_eq!(profile.layers[0].source, "profile paper-big");
        let ring = write("ring.toml", "based-on = \"ring.toml\"");
        let e = Profile::load(&ring).unwrap_err();
        assert!(e.contains("goes on and on"), "{e}");
        let broken = write("broken.toml", "l2.ways = ");
        let e = Profile::load(&broken).unwrap_err();
        assert!(e.contains("broken.toml: not valid TOML"), "{e}");
        let typed = write("typed.toml", "l2.ways = true");
        let e = Profile::load(&typed).unwrap_err();
        assert!(
            e.contains("l2.ways must be a number or a string, not boolean"),
            "{e}"
        );
        std::fs::remove_dir_all(&dir).unwrap();
    }

    #[test]
    fn unknown_profiles_are_named_with_the_nearest() {
        let e = Profile::load("paper-bigg").unwrap_err();
        assert!(e.contains("did you mean \"paper-big\"?"), "{e}");
        assert!(e.contains("./paper-bigg.toml"), "{e}");
        let e = Profile::load("./none.toml").unwrap_err();
        assert!(e.contains("cannot read the profile ./none.toml"), "{e}");
    }
}
