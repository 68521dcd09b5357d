//! Gives the pipeline an identity: a hash of its own source, so that programs are built again
//! when the pipeline has changed and only then.

use std::path::{Path, PathBuf};

fn sources(dir: &Path, out: &mut Vec<PathBuf>) -> std::io::Result<()> {
    for entry in std::fs::read_dir(dir)? {
        let path = entry?.path();
        if path.is_dir() {
            sources(&path, out)?;
        } else {
            out.push(path);
        }
    }
    Ok(())
}

fn main() -> std::io::Result<()> {
    let mut files = Vec::new();
    // The layout of the table of sites is what makes and what reads it agree on.
    for dir in ["src", "transform/src"] {
        println!("cargo::rerun-if-changed={dir}");
        sources(Path::new(dir), &mut files)?;
    }
    files.sort();
    let mut hash = 0xcbf2_9ce4_8422_2325u64;
    for file in files {
        let name = file.to_string_lossy().into_owned().into_bytes();
        for byte in name.into_iter().chain(std::fs::read(&file)?) {
            hash = (hash ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3);
        }
    }
    println!("cargo::rustc-env=MIGRATE_RT_SOURCE={hash:016x}");
    Ok(())
}
