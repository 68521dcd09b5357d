// SPDX-License-Identifier: GPL-2.0-or-later
//! The doorbells of all machines: descriptors that the broker hands to every plugin.
//!
//! A plugin says which node it is (8 bytes), and then is sent messages of 8 bytes, little-endian:
//! node in bits 8 to 15, vector in bits 0 to 7, with a descriptor; or a node and vector 255, without
//! one: that node's machine has left. A machine that comes again has new descriptors, and may be rung
//! by who has not got them yet: such a ring is owed, and made up for when they are there.

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

/// Longest wait for QEMU's main loop to take a ring, however busy the host is.
const PATIENCE: Duration = Duration::from_secs(60);
/// How often it may be found asleep meanwhile, after a sleep each: then it is not the host that keeps it
/// from taking the ring; it waits for something else, perhaps for this CPU.
const ASLEEP: u32 = 1000;
const LEFT: u8 = 255;

type Vectors = Vec<Option<Arc<OwnedFd>>>;

/// The descriptors.
pub struct Doorbells {
    vectors: usize,
    table: RwLock<[Vectors; MAX_NODES]>,
    /// Set of nodes of which all descriptors are known.
    known: AtomicU64,
    /// By node, the vectors that were rung before their descriptors were known. Changed with the table
    /// locked: a ring is made with a descriptor that is there, or else owed before it comes.
    owed: [AtomicU64; MAX_NODES],
}

impl Doorbells {
    /// Doorbells of no node yet, for machines with `vectors` vectors each.
    pub fn new(vectors: usize) -> Doorbells {
        Doorbells {
            vectors,
            table: RwLock::new([const { Vec::new() }; MAX_NODES]),
            known: AtomicU64::new(0),
            owed: [const { AtomicU64::new(0) }; MAX_NODES],
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
                    let bit = 1 << vector;
                    if self.owed[node].fetch_and(!bit, Ordering::AcqRel) & bit != 0 {
                        ring(&fd);
                    }
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

    /// Rings a vector of a machine, now or as soon as its descriptor is known. Does nothing if machines
    /// have no such vector.
    pub fn ring(&self, node: usize, vector: usize) {
        let table = self.table.read().unwrap_or_else(PoisonError::into_inner);
        let Some(vectors) = table.get(node) else {
            return;
        };
        match vectors.get(vector).and_then(Option::as_ref) {
            Some(fd) => ring(fd),
            None if vector < self.vectors => {
                self.owed[node].fetch_or(1 << vector, Ordering::AcqRel);
            }
            None => {}
        }
    }

    /// Rings a vector of this process's own machine and waits until QEMU's main loop has taken it.
    /// `false`: it did not in time. `asleep` says whether the main loop's thread is.
    pub fn ring_and_wait(&self, node: usize, vector: usize, asleep: impl Fn() -> bool) -> bool {
        let Some(fd) = self.vector(node, vector) else {
            return false;
        };
        if rustix::io::write(&fd, &1u64.to_ne_bytes()).is_err() {
            return false;
        }
        let begin = Instant::now();
        let mut slept = 0;
        for turn in 0.. {
            if is_empty(&fd) {
                return true;
            }
            if super::host::pause(turn) && asleep() {
                slept += 1;
            }
            if slept > ASLEEP || begin.elapsed() > PATIENCE {
                break;
            }
        }
        false
    }

    /// Whether all rings of a vector of this process's own machine have been taken.
    pub fn is_taken(&self, node: usize, vector: usize) -> bool {
        self.vector(node, vector).is_some_and(|fd| is_empty(&fd))
    }
}

fn is_empty(fd: &OwnedFd) -> bool {
    let mut fds = [PollFd::from_borrowed_fd(fd.as_fd(), PollFlags::IN)];
    poll(&mut fds, Some(&Timespec::default())) == Ok(0)
}

fn ring(fd: &OwnedFd) {
    // A full counter means that the machine has more than enough rings pending.
    let _ = rustix::io::write(fd, &1u64.to_ne_bytes());
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::AtomicBool;

    use crate::clock::host::SLEEP;
    use rustix::event::{EventfdFlags, eventfd};

    use super::*;

    /// Node 0's only vector, and a receiver of its rings.
    fn one() -> (Doorbells, OwnedFd) {
        let doorbells = Doorbells::new(1);
        let fd = eventfd(0, EventfdFlags::CLOEXEC).unwrap();
        doorbells.take(0, 0, Some(fd.try_clone().unwrap()));
        assert_eq!(doorbells.known(), 1);
        (doorbells, fd)
    }

    #[test]
    fn a_main_loop_that_gets_no_processor_is_waited_for() {
        let (doorbells, fd) = one();
        let rung = AtomicBool::new(false);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                std::thread::sleep(Duration::from_millis(900));
                assert!(!rung.load(Ordering::SeqCst));
                rustix::io::read(&fd, &mut [0; 8]).unwrap();
            });
            assert!(doorbells.ring_and_wait(0, 0, || false));
            rung.store(true, Ordering::SeqCst);
        });
    }

    /// A machine that has been restarted is rung by a machine that has not heard of the restart.
    #[test]
    fn rings_that_come_before_the_descriptor_are_made_up_for() {
        let (doorbells, _old) = one();
        doorbells.take(0, LEFT, None);
        assert_eq!(doorbells.known(), 0);
        doorbells.ring(0, 0);
        doorbells.ring(0, 0);
        doorbells.ring(0, 1);
        doorbells.ring(MAX_NODES, 0);
        let new = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK).unwrap();
        let count = || {
            let mut count = [0; 8];
            let read = rustix::io::read(&new, &mut count);
            read.map(|_| u64::from_ne_bytes(count)).unwrap_or(0)
        };
        doorbells.take(0, 0, Some(new.try_clone().unwrap()));
        assert_eq!(count(), 1, "once, however often it was");
        doorbells.ring(0, 0);
        assert_eq!(count(), 1, "and as usual from then on");
        doorbells.take(0, 0, Some(new.try_clone().unwrap()));
        assert_eq!(count(), 0, "nothing is owed any more");
    }

    #[test]
    fn a_main_loop_that_sleeps_is_not() {
        let (doorbells, _fd) = one();
        let begin = Instant::now();
        assert!(!doorbells.ring_and_wait(0, 0, || true));
        let took = begin.elapsed();
        let longest = PATIENCE / 2;
        assert!((SLEEP * ASLEEP..longest).contains(&took), "{took:?}");
        assert!(!doorbells.ring_and_wait(1, 0, || true));
    }
}
