// SPDX-License-Identifier: GPL-2.0-or-later
//! The doorbells of all machines: descriptors that the broker hands to every plugin.
//!
//! A plugin says which node it is (8 bytes), and then is sent messages of 8 bytes, little-endian:
//! node in bits 8 to 15, vector in bits 0 to 7, with a descriptor; or a node and vector 255, without
//! one: that node's machine has left. A machine that comes again has new descriptors.

use std::io::{IoSliceMut, Write};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, OwnedFd};
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixStream};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, PoisonError, RwLock};
use std::time::{Duration, Instant};

use dyad_abi::ident::MAX_NODES;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::net::{RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, recvmsg};

/// Longest wait for QEMU's main loop to take a ring.
const PATIENCE: Duration = Duration::from_millis(200);
const LEFT: u8 = 255;

type Vectors = Vec<Option<Arc<OwnedFd>>>;

/// The descriptors.
pub struct Doorbells {
    vectors: usize,
    table: RwLock<[Vectors; MAX_NODES]>,
    /// Set of nodes of which all descriptors are known.
    known: AtomicU64,
}

impl Doorbells {
    /// Nobody's, for machines with that many vectors each.
    pub fn new(vectors: usize) -> Doorbells {
        Doorbells {
            vectors,
            table: RwLock::new([const { Vec::new() }; MAX_NODES]),
            known: AtomicU64::new(0),
        }
    }

    /// Connects to the broker.
    ///
    /// # Errors
    ///
    /// If there is none.
    pub fn connect(name: &str, node: u64) -> std::io::Result<UnixStream> {
        let mut stream = UnixStream::connect_addr(&SocketAddr::from_abstract_name(name)?)?;
        stream.write_all(&node.to_le_bytes())?;
        Ok(stream)
    }

    /// Takes one message of the broker, waiting for it at most that long. `None`: there is no
    /// broker any more.
    pub fn receive(&self, stream: &UnixStream, limit: Duration) -> Option<()> {
        let mut fds = [PollFd::new(stream, PollFlags::IN)];
        let limit = Timespec::try_from(limit).ok()?;
        match poll(&mut fds, Some(&limit)) {
            Ok(0) => return Some(()),
            Err(rustix::io::Errno::INTR) => return Some(()),
            Ok(_) => {}
            Err(_) => return None,
        }
        let mut bytes = [0; 8];
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
        let mut control = RecvAncillaryBuffer::new(&mut space);
        let iov = &mut [IoSliceMut::new(&mut bytes)];
        let got = recvmsg(stream, iov, &mut control, RecvFlags::CMSG_CLOEXEC).ok()?;
        if got.bytes != 8 {
            return None;
        }
        let fd = control.drain().find_map(|m| match m {
            RecvAncillaryMessage::ScmRights(mut fds) => fds.next(),
            _ => None,
        });
        self.take(usize::from(bytes[1]), bytes[0], fd);
        Some(())
    }

    fn take(&self, node: usize, vector: u8, fd: Option<OwnedFd>) {
        let mut table = self.table.write().unwrap_or_else(PoisonError::into_inner);
        let Some(vectors) = table.get_mut(node) else {
            return;
        };
        match fd {
            None if vector == LEFT => vectors.clear(),
            None => {}
            Some(fd) => {
                vectors.resize_with(self.vectors, || None);
                if let Some(place) = vectors.get_mut(usize::from(vector)) {
                    *place = Some(Arc::new(fd));
                }
            }
        }
        let complete = !vectors.is_empty() && vectors.iter().all(Option::is_some);
        drop(table);
        match complete {
            true => self.known.fetch_or(1 << node, Ordering::AcqRel),
            false => self.known.fetch_and(!(1 << node), Ordering::AcqRel),
        };
    }

    /// Set of nodes of which all descriptors are known.
    pub fn known(&self) -> u64 {
        self.known.load(Ordering::Acquire)
    }

    fn vector(&self, node: usize, vector: usize) -> Option<Arc<OwnedFd>> {
        let table = self.table.read().unwrap_or_else(PoisonError::into_inner);
        table.get(node)?.get(vector)?.clone()
    }

    /// Rings a vector of a machine. Does nothing if there is none.
    pub fn ring(&self, node: usize, vector: usize) {
        if let Some(fd) = self.vector(node, vector) {
            // A full counter means that the machine has more than enough rings pending.
            let _ = rustix::io::write(&fd, &1u64.to_ne_bytes());
        }
    }

    /// Rings a vector of this process's own machine and waits until QEMU's main loop has taken it.
    /// `false`: it did not in time.
    pub fn ring_and_wait(&self, node: usize, vector: usize) -> bool {
        let Some(fd) = self.vector(node, vector) else {
            return false;
        };
        if rustix::io::write(&fd, &1u64.to_ne_bytes()).is_err() {
            return false;
        }
        let begin = Instant::now();
        for turn in 0.. {
            let mut fds = [PollFd::from_borrowed_fd(fd.as_fd(), PollFlags::IN)];
            let now = Timespec::default();
            if poll(&mut fds, Some(&now)) == Ok(0) {
                return true;
            }
            if begin.elapsed() > PATIENCE {
                break;
            }
            super::host::pause(turn);
        }
        false
    }
}
