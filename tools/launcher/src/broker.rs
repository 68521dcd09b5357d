//! The doorbell broker: connects the machines' `ivshmem-doorbell` devices with each other.
//!
//! It speaks version 0 of QEMU's ivshmem protocol: 8-byte little-endian messages, some with a
//! file descriptor. A new peer gets the version, its identifier, a memory descriptor (a dummy:
//! the shared memory of this system are the pools), one message per vector of every other peer,
//! and its own vectors last; the others get the new peer's vectors. A peer that leaves is
//! announced by its bare identifier.
//!
//! Machines may connect at any time, so one that has died can be started again. The launcher can
//! ring every CPU of every machine too, through the same descriptors.
//!
//! The sockets are abstract ones: they have no files and are gone with this process. Only processes
//! of the same user are served.
//!
//! # Watchers
//!
//! The simulator's plugin in a machine rings all machines too, and has to know which is which. It
//! connects to a second socket, says which node its machine is (8 bytes, little-endian), and is
//! sent 8 bytes per vector of every machine whose plugin has said that, with a descriptor: node in
//! bits 8 to 15, vector in bits 0 to 7. If a machine leaves, vector `LEFT` follows without one.
//! A plugin and its machine's device are the same process; that is how a machine's node is known.

use std::io::{IoSlice, Read};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixListener, UnixStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use rustix::event::{EventfdFlags, PollFd, PollFlags, eventfd, poll};
use rustix::net::{SendAncillaryBuffer, SendAncillaryMessage, SendFlags, sendmsg};

const VERSION: i64 = 0;
const MEMORY: i64 = -1;
/// In the place of a vector: the machine has left.
const LEFT: i64 = 255;
/// The device wants its (unused) shared memory to be a power of two.
const DUMMY_MEMORY: u64 = 1 << 20;
/// A peer that does not take its messages for this long is given up.
const SEND_TIMEOUT: Duration = Duration::from_secs(2);

#[derive(Debug)]
struct Peer {
    id: i64,
    pid: i32,
    stream: UnixStream,
    vectors: Vec<OwnedFd>,
}

#[derive(Debug)]
struct Watcher {
    pid: i32,
    node: i64,
    stream: UnixStream,
}

#[derive(Debug)]
struct Shared {
    peers: Mutex<Vec<Peer>>,
    stop: AtomicBool,
    wake: OwnedFd,
}

/// A running broker. Dropping it ends it.
#[derive(Debug)]
pub struct Broker {
    name: String,
    watch: String,
    shared: Arc<Shared>,
    thread: Option<std::thread::JoinHandle<()>>,
}

impl Broker {
    /// Starts a broker for machines with `vectors` vectors each.
    ///
    /// # Errors
    ///
    /// If the operating system refuses a socket, a descriptor or a thread.
    pub fn start(vectors: usize) -> std::io::Result<Broker> {
        let name = format!("dyad-{}-{:x}", std::process::id(), crate::pools::nonce());
        let listener = UnixListener::bind_addr(&SocketAddr::from_abstract_name(&name)?)?;
        listener.set_nonblocking(true)?;
        let watch = format!("{name}-clock");
        let watching = UnixListener::bind_addr(&SocketAddr::from_abstract_name(&watch)?)?;
        watching.set_nonblocking(true)?;
        let memory = rustix::fs::memfd_create("dyad-doorbell", rustix::fs::MemfdFlags::CLOEXEC)?;
        rustix::fs::ftruncate(&memory, DUMMY_MEMORY)?;
        let shared = Arc::new(Shared {
            peers: Mutex::new(Vec::new()),
            stop: AtomicBool::new(false),
            wake: new_eventfd()?,
        });
        let server = Server {
            listener,
            watching,
            watchers: Vec::new(),
            memory,
            vectors,
            shared: Arc::clone(&shared),
            next: 0,
        };
        let thread = std::thread::Builder::new()
            .name("doorbell".into())
            .spawn(move || server.serve())?;
        Ok(Broker {
            name,
            watch,
            shared,
            thread: Some(thread),
        })
    }

    /// Abstract name of the socket.
    pub fn socket(&self) -> &str {
        &self.name
    }

    /// Abstract name of the socket for the simulator's plugins.
    pub fn watch_socket(&self) -> &str {
        &self.watch
    }

    /// Rings the first `cpus` vectors of every machine that is connected.
    pub fn ring_all(&self, cpus: usize) {
        self.ringer().ring_all(cpus);
    }

    /// A handle for ringing from another thread while the broker runs.
    pub fn ringer(&self) -> Ringer {
        Ringer(Arc::clone(&self.shared))
    }

    /// Number of machines connected now.
    pub fn peers(&self) -> usize {
        self.shared.lock().len()
    }
}

/// Rings the machines of a [`Broker`].
#[derive(Clone, Debug)]
pub struct Ringer(Arc<Shared>);

impl Ringer {
    /// As [`Broker::ring_all`].
    pub fn ring_all(&self, cpus: usize) {
        for peer in self.0.lock().iter() {
            for vector in peer.vectors.iter().take(cpus) {
                // A full counter means that the machine has more than enough rings pending.
                let _ = rustix::io::write(vector, &1u64.to_ne_bytes());
            }
        }
    }
}

impl Drop for Broker {
    fn drop(&mut self) {
        self.shared.stop.store(true, Ordering::Release);
        let _ = rustix::io::write(&self.shared.wake, &1u64.to_ne_bytes());
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

impl Shared {
    fn lock(&self) -> std::sync::MutexGuard<'_, Vec<Peer>> {
        self.peers.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

struct Server {
    listener: UnixListener,
    watching: UnixListener,
    watchers: Vec<Watcher>,
    memory: OwnedFd,
    vectors: usize,
    shared: Arc<Shared>,
    next: i64,
}

impl Server {
    fn serve(mut self) {
        while !self.shared.stop.load(Ordering::Acquire) {
            // Only this thread changes the list, so indices stay valid between the two locks;
            // clones of the streams are what is waited on, so that no thread waits for the lock.
            let streams: Vec<UnixStream> = {
                let peers = self.shared.lock();
                peers
                    .iter()
                    .filter_map(|p| p.stream.try_clone().ok())
                    .collect()
            };
            let own = [
                self.shared.wake.as_fd(),
                self.listener.as_fd(),
                self.watching.as_fd(),
            ];
            let mut fds: Vec<PollFd<'_>> = own
                .into_iter()
                .chain(streams.iter().map(AsFd::as_fd))
                .map(|fd| PollFd::from_borrowed_fd(fd, PollFlags::IN))
                .collect();
            if poll(&mut fds, None).is_err() {
                continue;
            }
            let ready: Vec<bool> = fds.iter().map(|f| !f.revents().is_empty()).collect();
            drop(fds);
            self.drop_gone(&ready[own.len()..]);
            if ready[2] {
                while let Ok((stream, _)) = self.watching.accept() {
                    self.watch(stream);
                }
            }
            if ready[1] {
                while let Ok((stream, _)) = self.listener.accept() {
                    self.admit(stream);
                }
            }
        }
    }

    /// Forgets peers whose connection is closed and tells the others. Peers send nothing.
    fn drop_gone(&mut self, ready: &[bool]) {
        let shared = Arc::clone(&self.shared);
        let mut peers = shared.lock();
        let mut gone = Vec::new();
        for i in (0..ready.len().min(peers.len())).rev() {
            let mut bytes = [0; 64];
            if ready[i] && !matches!((&peers[i].stream).read(&mut bytes), Ok(n) if n > 0) {
                gone.push(peers.remove(i));
            }
        }
        for g in &gone {
            for p in peers.iter() {
                let _ = send(&p.stream, g.id, None);
            }
            if let Some(node) = self.node_of(g.pid) {
                self.tell_watchers(node << 8 | LEFT, None);
                self.watchers.retain(|w| w.pid != g.pid);
            }
        }
    }

    fn node_of(&self, pid: i32) -> Option<i64> {
        self.watchers.iter().find(|w| w.pid == pid).map(|w| w.node)
    }

    fn tell_vectors(&self, node: i64, vectors: &[OwnedFd]) {
        for w in &self.watchers {
            let _ = tell_vectors(&w.stream, node, vectors);
        }
    }

    fn tell_watchers(&self, word: i64, fd: Option<BorrowedFd<'_>>) {
        for w in &self.watchers {
            let _ = send(&w.stream, word, fd);
        }
    }

    /// A plugin has connected: it says who it is, and hears of the machines that there are.
    fn watch(&mut self, mut stream: UnixStream) {
        let Some(pid) = pid_of(&stream) else {
            return;
        };
        let mut node = [0; 8];
        if stream.set_read_timeout(Some(SEND_TIMEOUT)).is_err()
            || stream.read_exact(&mut node).is_err()
        {
            return;
        }
        let node = i64::from_le_bytes(node) & 0xff;
        let shared = Arc::clone(&self.shared);
        let peers = shared.lock();
        for p in peers.iter() {
            if let Some(of) = self.node_of(p.pid) {
                let _ = tell_vectors(&stream, of, &p.vectors);
            }
        }
        self.watchers.push(Watcher { pid, node, stream });
        // Its machine may have connected before.
        for p in peers.iter().filter(|p| p.pid == pid) {
            self.tell_vectors(node, &p.vectors);
        }
    }

    fn admit(&mut self, stream: UnixStream) {
        let Some(pid) = pid_of(&stream) else {
            return;
        };
        let vectors: Option<Vec<OwnedFd>> = (0..self.vectors).map(|_| new_eventfd().ok()).collect();
        let Some(vectors) = vectors else {
            return;
        };
        let id = self.next;
        self.next += 1;
        let shared = Arc::clone(&self.shared);
        let mut peers = shared.lock();
        let introduced = (|| {
            send(&stream, VERSION, None)?;
            send(&stream, id, None)?;
            send(&stream, MEMORY, Some(self.memory.as_fd()))?;
            for p in peers.iter() {
                for v in &p.vectors {
                    send(&stream, p.id, Some(v.as_fd()))?;
                }
            }
            for v in &vectors {
                send(&stream, id, Some(v.as_fd()))?;
            }
            Ok::<(), rustix::io::Errno>(())
        })();
        if introduced.is_err() {
            return;
        }
        for p in peers.iter() {
            for v in &vectors {
                // One that does not listen any more is noticed by its closed connection.
                let _ = send(&p.stream, id, Some(v.as_fd()));
            }
        }
        if let Some(node) = self.node_of(pid) {
            self.tell_vectors(node, &vectors);
        }
        peers.push(Peer {
            id,
            pid,
            stream,
            vectors,
        });
    }
}

/// The process at the other end, if it is of the same user. Messages to it are bounded from now on.
pub(crate) fn pid_of(stream: &UnixStream) -> Option<i32> {
    let own = rustix::process::geteuid();
    let peer = rustix::net::sockopt::socket_peercred(stream).ok()?;
    let bounded = stream.set_write_timeout(Some(SEND_TIMEOUT)).is_ok();
    (peer.uid == own && bounded).then(|| peer.pid.as_raw_nonzero().get())
}

fn tell_vectors(stream: &UnixStream, node: i64, vectors: &[OwnedFd]) -> rustix::io::Result<()> {
    for (v, fd) in vectors.iter().enumerate() {
        send(stream, node << 8 | v as i64, Some(fd.as_fd()))?;
    }
    Ok(())
}

/// Descriptors do not block: a machine's main loop must never wait in a read or a write of one.
fn new_eventfd() -> std::io::Result<OwnedFd> {
    Ok(eventfd(0, EventfdFlags::NONBLOCK | EventfdFlags::CLOEXEC)?)
}

fn send(stream: &UnixStream, word: i64, fd: Option<BorrowedFd<'_>>) -> rustix::io::Result<()> {
    let bytes = word.to_le_bytes();
    let fds: Vec<BorrowedFd<'_>> = fd.into_iter().collect();
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut control = SendAncillaryBuffer::new(&mut space);
    if !fds.is_empty() && !control.push(SendAncillaryMessage::ScmRights(&fds)) {
        return Err(rustix::io::Errno::NOBUFS);
    }
    sendmsg(
        stream,
        &[IoSlice::new(&bytes)],
        &mut control,
        SendFlags::NOSIGNAL,
    )?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::net::{RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, recvmsg};
    use std::io::IoSliceMut;

    /// A peer as QEMU is one.
    struct Machine(UnixStream);

    impl Machine {
        fn connect(b: &Broker) -> Machine {
            let address = SocketAddr::from_abstract_name(b.socket()).unwrap();
            let s = UnixStream::connect_addr(&address).unwrap();
            s.set_read_timeout(Some(Duration::from_secs(10))).unwrap();
            Machine(s)
        }

        fn message(&self) -> (i64, Option<OwnedFd>) {
            let mut bytes = [0; 8];
            let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
            let mut control = RecvAncillaryBuffer::new(&mut space);
            let got = recvmsg(
                &self.0,
                &mut [IoSliceMut::new(&mut bytes)],
                &mut control,
                RecvFlags::empty(),
            )
            .unwrap();
            assert_eq!(got.bytes, 8);
            let fd = control.drain().find_map(|m| match m {
                RecvAncillaryMessage::ScmRights(mut fds) => fds.next(),
                _ => None,
            });
            (i64::from_le_bytes(bytes), fd)
        }

        fn vectors(&self, of: i64, n: usize) -> Vec<OwnedFd> {
            let one = || {
                let (id, fd) = self.message();
                assert_eq!(id, of);
                fd.unwrap()
            };
            (0..n).map(|_| one()).collect()
        }

        fn hello(&self, id: i64) {
            assert_eq!(self.message().0, 0);
            assert_eq!(self.message().0, id);
            let (m, fd) = self.message();
            assert!(m == -1 && fd.is_some());
        }
    }

    fn count(fd: &OwnedFd) -> Option<u64> {
        let mut b = [0; 8];
        rustix::io::read(fd, &mut b).ok()?;
        Some(u64::from_ne_bytes(b))
    }

    #[test]
    fn peers_meet_ring_leave_and_come_back() {
        let broker = Broker::start(3).unwrap();
        let a = Machine::connect(&broker);
        a.hello(0);
        let a_own = a.vectors(0, 3);
        let b = Machine::connect(&broker);
        b.hello(1);
        let a_seen_by_b = b.vectors(0, 3);
        let b_own = b.vectors(1, 3);
        let b_seen_by_a = a.vectors(1, 3);

        rustix::io::write(&a_seen_by_b[2], &1u64.to_ne_bytes()).unwrap();
        assert_eq!(count(&a_own[2]), Some(1));
        assert_eq!(count(&a_own[1]), None);
        rustix::io::write(&b_seen_by_a[0], &1u64.to_ne_bytes()).unwrap();
        assert_eq!(count(&b_own[0]), Some(1));

        broker.ring_all(2);
        for own in [&a_own, &b_own] {
            assert_eq!((count(&own[0]), count(&own[1])), (Some(1), Some(1)));
            assert_eq!(count(&own[2]), None);
        }

        drop(b);
        let (left, fd) = a.message();
        assert!(left == 1 && fd.is_none());
        assert_eq!(broker.peers(), 1);
        let c = Machine::connect(&broker);
        c.hello(2);
        assert_eq!(a.vectors(2, 3).len(), 3);
    }

    #[test]
    fn nothing_is_left_when_it_ends() {
        let broker = Broker::start(1).unwrap();
        let address = SocketAddr::from_abstract_name(broker.socket()).unwrap();
        drop(broker);
        assert!(UnixStream::connect_addr(&address).is_err());
    }
}
