//! The archive of a run: `init`, the services, then the program, in one file.
//!
//! The format is that of [`dyad_abi::service::archive`], whose reader init uses.

use dyad_abi::service::archive::{ENTRY, HEADER, MAGIC, MAX_ENTRIES};
use dyad_abi::user::PAGE_SIZE;

use crate::error::Error;

/// Longest name of an entry.
const MAX_NAME: usize = 32;

/// Packs bundles, in this order, each from a page boundary on.
///
/// # Errors
///
/// If there are too many, or a name is empty, too long or there twice.
pub fn pack(bundles: &[(&str, &[u8])]) -> Result<Vec<u8>, Error> {
    if bundles.len() > MAX_ENTRIES {
        return Err(Error::Build(format!(
            "an archive has at most {MAX_ENTRIES} programs, not {}",
            bundles.len()
        )));
    }
    let mut file = vec![0; HEADER + ENTRY * bundles.len()];
    file[..8].copy_from_slice(&MAGIC.to_le_bytes());
    file[8..16].copy_from_slice(&(bundles.len() as u64).to_le_bytes());
    for (i, &(name, bytes)) in bundles.iter().enumerate() {
        if name.is_empty() || name.len() > MAX_NAME || name.contains('\0') {
            return Err(Error::Build(format!(
                "{name:?} cannot be a program's name in an archive: give it 1 to {MAX_NAME} bytes"
            )));
        }
        if bundles[..i].iter().any(|&(other, _)| other == name) {
            return Err(Error::Usage(format!(
                "{name:?} is the name of a part of the system: give the program another one"
            )));
        }
        file.resize(file.len().next_multiple_of(PAGE_SIZE as usize), 0);
        let offset = file.len() as u64;
        file.extend_from_slice(bytes);
        let entry = &mut file[HEADER + ENTRY * i..][..ENTRY];
        entry[..name.len()].copy_from_slice(name.as_bytes());
        entry[32..40].copy_from_slice(&offset.to_le_bytes());
        entry[40..48].copy_from_slice(&(bytes.len() as u64).to_le_bytes());
    }
    Ok(file)
}

#[cfg(test)]
mod tests {
    use super::*;
    use dyad_abi::service::archive::{entries, find};

    #[test]
    fn what_is_packed_is_found() {
        let bundles: [(&str, &[u8]); 4] = [
            ("init", &[1; 5000]),
            ("sched", &[2; 4096]),
            ("empty", &[]),
            ("a-name-of-exactly-thirty-two-byt", &[3]),
        ];
        let file = pack(&bundles).unwrap();
        let read: Vec<_> = entries(&file).unwrap().collect();
        assert_eq!(read, bundles);
        for (name, bytes) in bundles {
            let found = find(&file, name).unwrap();
            assert_eq!(found, bytes);
            let offset = found.as_ptr() as usize - file.as_ptr() as usize;
            assert!(offset.is_multiple_of(PAGE_SIZE as usize), "{name}");
        }
        assert_eq!(find(&file, "nobody"), None);
    }

    #[test]
    fn damage_hides_entries_and_nothing_worse() {
        let file = pack(&[("init", &[1; 100]), ("app", &[2; 100])]).unwrap();
        assert!(entries(&file[..15]).is_none());
        assert_eq!(entries(&file[..40]).map(|e| e.count()), Some(0));
        // The second bundle is cut off.
        assert_eq!(entries(&file[..5000]).map(|e| e.count()), Some(1));
        for at in 0..112 {
            let mut damaged = file.clone();
            damaged[at] ^= 0xff;
            let count = entries(&damaged).map_or(0, |e| e.count());
            assert!(count <= MAX_ENTRIES, "{at}");
        }
    }

    #[test]
    fn bad_names_are_refused() {
        let long = "x".repeat(33);
        for name in ["", "a\0b", &long] {
            assert!(pack(&[(name, &[])]).is_err(), "{name:?}");
        }
        let e = pack(&[("sched", &[]), ("sched", &[])]).unwrap_err();
        assert!(e.to_string().contains("another"), "{e}");
        let many = vec![("x", &[][..]); MAX_ENTRIES + 1];
        assert!(pack(&many).is_err());
    }
}
