//! The memory that machines share: one file per pool, which has no name.
//!
//! The files are created without a name (or lose it at once, where the file system cannot do
//! that), so they vanish with the last process that has them open, however it ends. Machines
//! open them through this process's descriptors.

use std::fs::File;
use std::os::fd::AsRawFd;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use dyad_abi::NodeId;
use dyad_shm::PoolId;
use dyad_shm::pool::MAX_POOLS;

use crate::error::Error;
use crate::size;

/// The pools of one run.
#[derive(Debug)]
pub struct Pools {
    files: Vec<(PoolId, File)>,
}

impl Pools {
    /// Creates zero-filled pools in `dir`.
    ///
    /// # Errors
    ///
    /// If there is not enough room (`limit`, if given, stands in for the room there is), or the
    /// directory cannot be used.
    pub fn create(
        dir: &Path,
        nodes: usize,
        local: u64,
        cxl: u64,
        limit: Option<u64>,
    ) -> Result<Pools, Error> {
        let needed = local * nodes as u64 + cxl;
        let available = match limit {
            Some(n) => n,
            None => available(dir)?,
        };
        if needed > available {
            return Err(Error::Setup(format!(
                "{} is too small: this run needs {} ({nodes} local pools of {} and {} for the CXL \
                 pool), {} are available. Use smaller pools (--mem-local, --mem-cxl), free some \
                 room, or name another memory file system (--shm-dir DIR)",
                dir.display(),
                size::show(needed),
                size::show(local),
                size::show(cxl),
                size::show(available)
            )));
        }
        let sizes = NodeId::first(nodes)
            .map(|n| (PoolId::Local(n), local))
            .chain([(PoolId::Cxl, cxl)]);
        let files = sizes
            .map(|(pool, bytes)| {
                let file = nameless(dir)?;
                file.set_len(bytes)?;
                Ok((pool, file))
            })
            .collect::<std::io::Result<_>>()
            .map_err(|e| Error::Setup(format!("cannot create pools in {}: {e}", dir.display())))?;
        Ok(Pools { files })
    }

    /// Paths under which another process of this user can open the pools, by pool index.
    pub fn paths(&self) -> Vec<PathBuf> {
        let mut paths = vec![PathBuf::new(); MAX_POOLS];
        for (pool, file) in &self.files {
            paths[pool.index()] = path_of(file);
        }
        paths
    }

    /// The paths of the pools that there are: local ones by node, then the CXL pool.
    pub fn present(&self) -> Vec<PathBuf> {
        self.files.iter().map(|(_, file)| path_of(file)).collect()
    }

    /// The CXL pool's file.
    pub fn cxl(&self) -> &File {
        &self.files.last().expect("there is always a CXL pool").1
    }

    /// Writes bytes into the CXL pool.
    ///
    /// # Errors
    ///
    /// If the file cannot be written.
    pub fn write_cxl(&self, offset: u64, bytes: &[u8]) -> Result<(), Error> {
        self.cxl()
            .write_all_at(bytes, offset)
            .map_err(|e| Error::io("cannot write into the CXL pool", e))
    }
}

/// Memory of zeros that plugins share with each other and not with their machines.
#[derive(Debug)]
pub struct SharedWords {
    file: File,
}

impl SharedWords {
    /// As many words in `dir`; what is never written takes no room.
    ///
    /// # Errors
    ///
    /// If the directory cannot be used.
    pub fn create(dir: &Path, words: usize) -> Result<SharedWords, Error> {
        let file = nameless(dir).and_then(|file| {
            file.set_len(words as u64 * 8)?;
            Ok(file)
        });
        let file = file.map_err(|e| {
            let dir = dir.display();
            Error::Setup(format!(
                "cannot create the simulator's memory in {dir}: {e}"
            ))
        })?;
        Ok(SharedWords { file })
    }

    /// The path under which another process of this user can open it.
    pub fn path(&self) -> PathBuf {
        path_of(&self.file)
    }

    /// Stores a word.
    ///
    /// # Errors
    ///
    /// If the file cannot be written.
    pub fn write(&self, at: usize, word: u64) -> std::io::Result<()> {
        self.file.write_all_at(&word.to_ne_bytes(), at as u64 * 8)
    }
}

/// The path under which another process of this user can open a file of this one.
fn path_of(file: &File) -> PathBuf {
    let (pid, fd) = (std::process::id(), file.as_raw_fd());
    format!("/proc/{pid}/fd/{fd}").into()
}

/// Bytes that can still be written in a file system.
///
/// # Errors
///
/// If there is no such directory.
pub fn available(dir: &Path) -> Result<u64, Error> {
    let v = rustix::fs::statvfs(dir).map_err(|e| {
        Error::Setup(format!(
            "cannot use {} for shared memory: {e}. Name the directory of a memory file system \
             with --shm-dir DIR",
            dir.display()
        ))
    })?;
    Ok(v.f_bavail.saturating_mul(v.f_frsize))
}

fn nameless(dir: &Path) -> std::io::Result<File> {
    let mut options = std::fs::OpenOptions::new();
    options.read(true).write(true).mode(0o600);
    let tmpfile = options
        .clone()
        .custom_flags(rustix::fs::OFlags::TMPFILE.bits() as i32)
        .open(dir);
    tmpfile.or_else(|_| {
        let name = dir.join(format!("dyad-{}-{:x}", std::process::id(), nonce()));
        let file = options.create_new(true).open(&name)?;
        std::fs::remove_file(&name)?;
        Ok(file)
    })
}

/// A number not used before in this process and unlikely in another.
pub(crate) fn nonce() -> u64 {
    use std::sync::atomic::{AtomicU64, Ordering};
    static COUNT: AtomicU64 = AtomicU64::new(0);
    let now = std::time::UNIX_EPOCH
        .elapsed()
        .map_or(0, |d| d.as_nanos() as u64);
    now << 8 | COUNT.fetch_add(1, Ordering::Relaxed) & 0xff
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn too_little_room_is_said_with_the_remedies() {
        let dir = Path::new("/dev/shm");
        let e = Pools::create(dir, 2, 64 << 20, 128 << 20, Some(100 << 20)).unwrap_err();
        let text = e.to_string();
        assert_eq!(e.exit_status(), 2);
        for word in [
            "256 MiB",
            "100 MiB",
            "--mem-local",
            "--mem-cxl",
            "--shm-dir",
        ] {
            assert!(text.contains(word), "{text}");
        }
    }

    #[test]
    fn pools_have_no_name_and_can_be_opened_by_others() {
        let dir = std::env::temp_dir().join(format!("dyad-pools-{}", nonce()));
        std::fs::create_dir(&dir).unwrap();
        let pools = Pools::create(&dir, 2, 1 << 20, 2 << 20, None).unwrap();
        assert_eq!(std::fs::read_dir(&dir).unwrap().count(), 0);
        pools.write_cxl(4096, b"bundle").unwrap();
        let cxl = File::open(&pools.paths()[PoolId::Cxl.index()]).unwrap();
        assert_eq!(cxl.metadata().unwrap().len(), 2 << 20);
        let mut bytes = [0; 6];
        cxl.read_exact_at(&mut bytes, 4096).unwrap();
        assert_eq!(&bytes, b"bundle");
        std::fs::remove_dir(&dir).unwrap();
    }

    #[test]
    fn a_directory_that_is_not_there_is_a_set_up_error() {
        let e = Pools::create(Path::new("/nonexistent"), 2, 1 << 20, 1 << 20, None).unwrap_err();
        assert!(e.to_string().contains("--shm-dir"), "{e}");
    }
}
