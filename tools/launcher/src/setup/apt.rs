//! What this computer's package manager knows: its sources, and which versions they offer.
//!
//! Sources are read from apt's own files, in both forms: one-line (`deb [options] uri suite
//! components`) and deb822 (stanzas of fields). A new entry for a backports suite is a copy of
//! the entry that offers the distribution itself, so whatever mirror, key and options this
//! computer uses are used for it too.

use std::path::Path;

use super::version::Version;

/// An entry of apt's sources, as deb822 fields.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Source {
    /// Fields in order, values with their continuation lines.
    fields: Vec<(String, String)>,
}

/// Options of one-line entries and the fields they correspond to.
const OPTIONS: [(&str, &str); 9] = [
    ("arch", "Architectures"),
    ("signed-by", "Signed-By"),
    ("trusted", "Trusted"),
    ("check-valid-until", "Check-Valid-Until"),
    ("valid-until-max", "Valid-Until-Max"),
    ("by-hash", "By-Hash"),
    ("pdiffs", "PDiffs"),
    ("allow-insecure", "Allow-Insecure"),
    ("lang", "Languages"),
];

impl Source {
    fn get(&self, name: &str) -> Option<&str> {
        let found = self
            .fields
            .iter()
            .find(|(n, _)| n.eq_ignore_ascii_case(name));
        found.map(|(_, v)| v.as_str())
    }

    fn words(&self, name: &str) -> impl Iterator<Item = &str> {
        self.get(name).unwrap_or_default().split_whitespace()
    }

    fn offers(&self, suite: &str) -> bool {
        let enabled = self
            .get("Enabled")
            .is_none_or(|v| !v.trim().eq_ignore_ascii_case("no"));
        enabled
            && self.words("Types").any(|t| t == "deb")
            && self.words("Suites").any(|s| s == suite)
            && self.words("Components").any(|c| c == "main")
    }

    /// The same entry for binary and for source packages, as text of a `.sources` file; `None` if
    /// it is switched off.
    fn with_source_packages(&self) -> Option<String> {
        let off = self
            .get("Enabled")
            .is_some_and(|v| v.trim().eq_ignore_ascii_case("no"));
        if off {
            return None;
        }
        let mut text = String::new();
        for (name, value) in &self.fields {
            let value = match name.to_ascii_lowercase().as_str() {
                "types" => "deb deb-src",
                _ => value,
            };
            text.push_str(&format!("{name}: {value}\n"));
        }
        Some(text)
    }

    /// The same entry for another suite, as text of a `.sources` file.
    fn for_suite(&self, suite: &str) -> String {
        let mut text = String::new();
        for (name, value) in &self.fields {
            let value = match name.to_ascii_lowercase().as_str() {
                "types" => "deb",
                "suites" => suite,
                "components" => "main",
                "enabled" => continue,
                _ => value,
            };
            text.push_str(&format!("{name}: {value}\n"));
        }
        text
    }

    /// Reads stanzas.
    pub fn parse_deb822(text: &str) -> Vec<Source> {
        let mut sources = Vec::new();
        let mut fields: Vec<(String, String)> = Vec::new();
        for line in text.lines().chain([""]) {
            if line.starts_with('#') {
                continue;
            }
            if line.trim().is_empty() {
                if !fields.is_empty() {
                    let fields = std::mem::take(&mut fields);
                    sources.push(Source { fields });
                }
            } else if line.starts_with([' ', '\t']) {
                if let Some((_, value)) = fields.last_mut() {
                    value.push('\n');
                    value.push_str(line);
                }
            } else if let Some((name, value)) = line.split_once(':') {
                fields.push((name.trim().into(), value.trim().into()));
            }
        }
        sources
    }

    /// Reads one-line entries.
    pub fn parse_one_line(text: &str) -> Vec<Source> {
        text.lines().filter_map(Source::from_line).collect()
    }

    fn from_line(line: &str) -> Option<Source> {
        let line = line.split('#').next()?.trim();
        let (kind, mut rest) = line.split_once(char::is_whitespace)?;
        rest = rest.trim_start();
        let mut options = Vec::new();
        if let Some(inside) = rest.strip_prefix('[') {
            let (text, after) = inside.split_once(']')?;
            for option in text.split_whitespace() {
                let (name, value) = option.split_once('=')?;
                let name = name.trim_end_matches(['+', '-']);
                if let Some((_, field)) = OPTIONS.iter().find(|(o, _)| *o == name) {
                    options.push(((*field).to_string(), value.replace(',', " ")));
                }
            }
            rest = after.trim_start();
        }
        let mut words = rest.split_whitespace();
        let (uri, suite) = (words.next()?, words.next()?);
        let components: Vec<&str> = words.collect();
        let mut fields = vec![
            ("Types".to_string(), kind.to_string()),
            ("URIs".into(), uri.into()),
            ("Suites".into(), suite.into()),
            ("Components".into(), components.join(" ")),
        ];
        fields.extend(options);
        Some(Source { fields })
    }
}

/// Reads all of apt's sources below `root` (`/`, except in tests).
pub fn sources(root: &Path) -> Vec<Source> {
    let etc = root.join("etc/apt");
    let read = |path: &Path| std::fs::read_to_string(path).unwrap_or_default();
    let mut all = Source::parse_one_line(&read(&etc.join("sources.list")));
    let entries = std::fs::read_dir(etc.join("sources.list.d"));
    let mut parts: Vec<_> = entries
        .into_iter()
        .flatten()
        .flatten()
        .map(|e| e.path())
        .collect();
    parts.sort();
    for path in parts {
        match path.extension().and_then(|e| e.to_str()) {
            Some("list") => all.extend(Source::parse_one_line(&read(&path))),
            Some("sources") => all.extend(Source::parse_deb822(&read(&path))),
            _ => {}
        }
    }
    all
}

/// The distribution, from `/etc/os-release`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Distribution {
    /// `debian`, `ubuntu`, ...
    pub id: String,
    /// `bookworm`, `noble`, ...
    pub codename: String,
    /// For people.
    pub name: String,
}

impl Distribution {
    /// Reads the text of `os-release`.
    pub fn parse(text: &str) -> Distribution {
        let get = |key: &str| -> String {
            let line = text
                .lines()
                .find_map(|l| l.strip_prefix(key)?.strip_prefix('='));
            line.unwrap_or_default()
                .trim_matches(['"', '\''])
                .to_string()
        };
        Distribution {
            id: get("ID"),
            codename: get("VERSION_CODENAME"),
            name: get("PRETTY_NAME"),
        }
    }
}

/// A version of a package that a configured suite offers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Offer {
    /// The version.
    pub version: Version,
    /// The suite that offers it.
    pub suite: String,
}

/// What `apt-cache policy` says about one package.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Policy {
    /// Name of the package.
    pub package: String,
    /// What `apt-get install` would install.
    pub candidate: Option<Version>,
    /// What there is.
    pub offers: Vec<Offer>,
}

/// Reads the output of `apt-cache policy PACKAGE...`.
pub fn parse_policy(text: &str) -> Vec<Policy> {
    let mut all: Vec<Policy> = Vec::new();
    let mut version = None;
    for line in text.lines() {
        if let Some(package) = line.strip_suffix(':').filter(|l| !l.starts_with(' ')) {
            all.push(Policy {
                package: package.into(),
                ..Policy::default()
            });
            version = None;
            continue;
        }
        let Some(policy) = all.last_mut() else {
            continue;
        };
        let words: Vec<&str> = line.trim_start_matches(" ***").split_whitespace().collect();
        match words[..] {
            ["Candidate:", v] => policy.candidate = Version::of_package(v),
            ["Installed:", _] | ["Version", "table:"] => {}
            // `PRIORITY URI SUITE/COMPONENT ARCHITECTURE Packages`
            [_, _, archive, _, "Packages"] => {
                if let (Some(version), Some((suite, _))) = (version, archive.split_once('/')) {
                    let suite = suite.into();
                    policy.offers.push(Offer { version, suite });
                }
            }
            // `VERSION PRIORITY`
            [v, priority] if priority.parse::<i32>().is_ok() => version = Version::of_package(v),
            _ => {}
        }
    }
    all
}

/// A new entry: text for a `.sources` file that adds the backports suite, and that suite's name.
/// `None` if the distribution has none that helps, or no entry to copy is found.
pub fn backports_entry(dist: &Distribution, sources: &[Source]) -> Option<(String, String)> {
    if dist.id != "debian" || dist.codename.is_empty() {
        return None;
    }
    let suite = format!("{}-backports", dist.codename);
    // Sources may name the release by its role.
    let own = [dist.codename.as_str(), "stable", "oldstable"];
    let source = own
        .iter()
        .find_map(|name| sources.iter().find(|s| s.offers(name)))?;
    Some((source.for_suite(&suite), suite))
}

/// All entries that are in use, for binary and for source packages, as text of a `.sources` file.
pub fn with_source_packages(sources: &[Source]) -> String {
    let entries = sources
        .iter()
        .filter(|s| s.words("Types").any(|t| t == "deb"));
    let entries: Vec<String> = entries.filter_map(Source::with_source_packages).collect();
    entries.join("\n")
}

/// Whether some source offers this suite already.
pub fn is_configured(suite: &str, sources: &[Source]) -> bool {
    sources.iter().any(|s| s.offers(suite))
}

#[cfg(test)]
mod tests {
    use super::*;

    const DEB822: &str = "\
# a comment
Types: deb deb-src
URIs: http://mirror.example/debian
Suites: bookworm bookworm-updates
Components: main contrib
Signed-By:
 -----BEGIN PGP PUBLIC KEY BLOCK-----
 .
 abc
Check-Valid-Until: no

Types: deb
URIs: http://mirror.example/security
# another comment
Suites: bookworm-security
Components: main
Enabled: no
";

    fn bookworm() -> Distribution {
        Distribution::parse(
            "PRETTY_NAME=\"Debian GNU/Linux 12 (bookworm)\"\nID=debian\nVERSION_CODENAME=bookworm\n",
        )
    }

    #[test]
    fn a_stanza_is_copied_with_its_key_for_the_new_suite() {
        let sources = Source::parse_deb822(DEB822);
        assert_eq!(sources.len(), 2);
        assert!(sources[0].offers("bookworm-updates"));
        assert!(!sources[1].offers("bookworm-security"), "disabled");
        let (text, suite) = backports_entry(&bookworm(), &sources).unwrap();
        assert_eq!(suite, "bookworm-backports");
        assert_eq!(
            text,
            "Types: deb\nURIs: http://mirror.example/debian\nSuites: bookworm-backports\n\
             Components: main\nSigned-By: \n -----BEGIN PGP PUBLIC KEY BLOCK-----\n .\n abc\n\
             Check-Valid-Until: no\n"
        );
        assert!(is_configured(&suite, &Source::parse_deb822(&text)));
    }

    #[test]
    fn a_line_is_copied_with_its_options() {
        let sources = Source::parse_one_line(
            "# deb http://no.example x main\n\
             deb [signed-by=/k.gpg] http://other.example/thing stable thing\n\
             deb-src http://mirror.example/debian bookworm main\n\
             deb [arch=amd64,arm64 signed-by=/usr/share/k.gpg] http://mirror.example/debian bookworm \
             main contrib # ours\n",
        );
        assert_eq!(sources.len(), 3);
        let (text, _) = backports_entry(&bookworm(), &sources).unwrap();
        assert_eq!(
            text,
            "Types: deb\nURIs: http://mirror.example/debian\nSuites: bookworm-backports\n\
             Components: main\nArchitectures: amd64 arm64\nSigned-By: /usr/share/k.gpg\n"
        );
    }

    #[test]
    fn source_packages_come_from_the_same_places() {
        let mut sources = Source::parse_deb822(DEB822);
        sources.extend(Source::parse_one_line(
            "deb [arch=amd64] http://other.example/x suite main\n\
             deb-src http://other.example/x suite main\n",
        ));
        assert_eq!(
            with_source_packages(&sources),
            "Types: deb deb-src\nURIs: http://mirror.example/debian\nSuites: bookworm \
             bookworm-updates\nComponents: main contrib\nSigned-By: \n -----BEGIN PGP PUBLIC KEY \
             BLOCK-----\n .\n abc\nCheck-Valid-Until: no\n\n\
             Types: deb deb-src\nURIs: http://other.example/x\nSuites: suite\nComponents: main\n\
             Architectures: amd64\n"
        );
        assert_eq!(with_source_packages(&[]), "");
    }

    #[test]
    fn nothing_is_invented() {
        assert_eq!(backports_entry(&bookworm(), &[]), None);
        let ubuntu = Distribution {
            id: "ubuntu".into(),
            codename: "noble".into(),
            name: String::new(),
        };
        assert_eq!(
            backports_entry(&ubuntu, &Source::parse_deb822(DEB822)),
            None
        );
    }

    #[test]
    fn policies_tell_which_suite_offers_what() {
        let text = "\
qemu-system-x86:
  Installed: (none)
  Candidate: 1:7.2+dfsg-7+deb12u18
  Version table:
     1:10.0.2+ds-2+deb13u1~bpo12+1 100
        100 http://mirror.example/debian bookworm-backports/main amd64 Packages
 *** 1:7.2+dfsg-7+deb12u18 500
        500 http://mirror.example/debian bookworm/main amd64 Packages
        100 /var/lib/dpkg/status
qemu-system-arm:
  Installed: (none)
  Candidate: (none)
  Version table:
";
        let policies = parse_policy(text);
        assert_eq!(policies.len(), 2);
        let v = |major, minor| Version { major, minor };
        assert_eq!(policies[0].candidate, Some(v(7, 2)));
        let offers: Vec<_> = policies[0]
            .offers
            .iter()
            .map(|o| (o.version, o.suite.as_str()))
            .collect();
        assert_eq!(
            offers,
            [(v(10, 0), "bookworm-backports"), (v(7, 2), "bookworm")]
        );
        assert_eq!((policies[1].candidate, policies[1].offers.len()), (None, 0));
    }
}
