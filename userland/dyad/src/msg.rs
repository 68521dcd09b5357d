//! Messages between threads of the program, on any nodes.
//!
//! ```no_run
//! use dyad::msg::{Config, Level, Mode, Network};
//! use dyad::thread;
//!
//! # fn main() -> dyad::Result<()> {
//! let network = Network::new(Config::new(2))?;
//! let server = network.clone();
//! let there = thread::spawn_on(dyad::NodeId::new(1).unwrap(), move || -> dyad::Result<()> {
//!     let mut end = server.endpoint(1, Mode::Adaptive(1000))?;
//!     let mut bytes = Vec::new();
//!     let call = end.recv(&mut bytes, None)?;
//!     bytes.reverse();
//!     Ok(end.reply(&call, 0, &bytes, None)?)
//! })?;
//! network.reserve(1, there.thread())?;
//! let mut end = network.endpoint(0, Mode::Doorbell)?;
//! let mut answer = Vec::new();
//! end.call(1, Level::Normal, 0, b"desserts", &mut answer, None)?;
//! assert_eq!(answer, b"stressed");
//! # there.join()?
//! # }
//! ```
//!
//! A [`Network`] is memory that all threads of the program share; each thread opens an [`Endpoint`] of it,
//! whose operations are those of a [`Station`]. A doorbell is a send to the endpoint where the receiving
//! thread waits ([`sys::thread::wake`]): no service is involved, and no node sends anything for another.
//!
//! | | |
//! |---|---|
//! | a thread | [`send`](Station::send), [`recv`](Station::recv), [`call`](Station::call) block the thread |
//! | a task | [`send_async`](Endpoint::send_async), [`recv_async`](Endpoint::recv_async), [`call_async`](Endpoint::call_async) let other tasks run meanwhile |
//! | points of time | fused time in ns, as of [`Instant::as_nanos`](crate::Instant::as_nanos) |
//! | a thread is lost with its node | every call that names its station fails at once with [`Error::NodeDead`] |
//! | a thread is lost before it has opened its station | the same if the station was [reserved](Network::reserve) for the thread; otherwise waits for it go on |
//!
//! The crate [`dyad_msg`] describes the rules.

use alloc::sync::Arc;
use alloc::vec::Vec;
use core::future::poll_fn;
use core::marker::PhantomData;
use core::ops::{Deref, DerefMut};
use core::sync::atomic::{AtomicU64, Ordering};
use core::task::{Context, Poll};

use dyad_msg::MAX_STATIONS;
use dyad_msg::station::CHECK_NS;
use dyad_msg::words::{Line, lines};
use dyad_sys as sys;
use dyad_sys::thread::Number;

pub use dyad_msg::{
    Config, Counters, Delay, Envelope, Error, Host, Kind, Level, MAX_MESSAGE_BYTES, Mode,
    STARVATION, Station,
};

use crate::executor;
use crate::thread::Thread;

/// Memory through which threads send messages. Clones refer to the same network.
#[derive(Clone)]
pub struct Network(Arc<Shared>);

struct Shared {
    memory: Arc<[Line]>,
    stations: usize,
    /// Of each station the number of its thread plus one: of the thread that has opened it last, or before that, of
    /// the thread that it is reserved for. 0: neither.
    seats: [AtomicU64; MAX_STATIONS],
}

/// The waiting and waking of a station's thread.
pub struct Seat(Arc<Shared>);

/// One end of a [`Network`], for the thread that has opened it. Dropping it [closes](Station::close) the station: who
/// waits for the thread is told [`Error::Closed`], and groups go on without the thread.
pub struct Endpoint {
    station: Station<Arc<[Line]>, Seat>,
    /// Makes the type not `Send`: the endpoint waits where the thread that has opened it waits.
    stays: PhantomData<*const ()>,
}

impl Network {
    /// Makes a network.
    ///
    /// # Errors
    ///
    /// [`Error::BadLayout`] if the configuration is too large or too small.
    pub fn new(config: Config) -> crate::Result<Network> {
        let memory = lines(config.memory_lines());
        config.format(&memory)?;
        Ok(Network(Arc::new(Shared {
            memory,
            stations: config.stations,
            seats: [const { AtomicU64::new(0) }; MAX_STATIONS],
        })))
    }

    /// Reserves a station for a thread that will open it, if it is not open yet. Without a reservation no thread can
    /// tell a station whose thread has been lost from one that is about to be opened. The reservation of a thread that
    /// has ended, or been lost, ends when another thread opens the station.
    ///
    /// # Errors
    ///
    /// [`Error::NotFound`] if there is no such station.
    pub fn reserve(&self, station: usize, thread: Thread) -> Result<(), Error> {
        let seat = self.0.seats.get(station).ok_or(Error::NotFound)?;
        if station >= self.0.stations {
            return Err(Error::NotFound);
        }
        let number = thread.of_program().get() + 1;
        // A thread that has opened the station meanwhile has it.
        let _ = seat.compare_exchange(0, number, Ordering::AcqRel, Ordering::Relaxed);
        Ok(())
    }

    /// Opens a station for the calling thread. No other thread may use that station at the time.
    ///
    /// # Errors
    ///
    /// [`Error::NotFound`] if there is no such station; `Denied` in an invocation.
    pub fn endpoint(&self, station: usize, mode: Mode) -> crate::Result<Endpoint> {
        let number = sys::thread::number().ok_or(sys::Error::Denied)?;
        let seat = self.0.seats.get(station).ok_or(Error::NotFound)?;
        seat.store(number.get() + 1, Ordering::Release);
        Ok(Endpoint {
            station: Station::open(self.0.memory.clone(), Seat(self.0.clone()), station, mode)?,
            stays: PhantomData,
        })
    }
}

impl Shared {
    fn seat(&self, station: usize) -> Option<Number> {
        let seat = self.seats.get(station)?.load(Ordering::Acquire);
        Number::new(seat.checked_sub(1)?)
    }
}

impl Host for Seat {
    fn now(&self) -> u64 {
        executor::now()
    }

    fn ring(&self, station: usize) {
        if let Some(thread) = self.0.seat(station) {
            // If its node is dead, a thread that waits for it finds that out.
            let _ = sys::thread::wake(thread);
        }
    }

    fn sleep(&self, until: u64) {
        // Waking early only costs a turn.
        let _ = sys::thread::wait(until);
    }

    fn relax(&self) {
        sys::raw::relax();
    }

    fn alive(&self, station: usize) -> bool {
        let lost = sys::thread::lost();
        lost == 0 || self.0.seat(station).is_none_or(|n| lost & n.bit() == 0)
    }
}

impl Drop for Endpoint {
    fn drop(&mut self) {
        self.station.close();
    }
}

impl Deref for Endpoint {
    type Target = Station<Arc<[Line]>, Seat>;

    fn deref(&self) -> &Self::Target {
        &self.station
    }
}

impl DerefMut for Endpoint {
    fn deref_mut(&mut self) -> &mut Self::Target {
        &mut self.station
    }
}

/// A timer of a task; dropping it cancels the timer.
#[derive(Default)]
struct Alarm(Option<(u64, u64)>);

impl Alarm {
    fn set(&mut self, at: u64, cx: &Context<'_>) {
        self.clear();
        self.0 = Some((at, executor::set_timer(at, None, cx.waker().clone())));
    }

    fn clear(&mut self) {
        if let Some((at, timer)) = self.0.take() {
            executor::cancel_timer(at, timer);
        }
    }
}

impl Drop for Alarm {
    fn drop(&mut self) {
        self.clear();
    }
}

impl Endpoint {
    /// Ends its use, as dropping it does: see [`Station::close`].
    pub fn close(self) {}

    /// Calls `step` each time something has come in, until it returns a value or an error, or the deadline
    /// has passed.
    async fn until<T>(
        &mut self,
        deadline: Option<u64>,
        mut step: impl FnMut(&mut Self) -> Result<Option<T>, Error>,
    ) -> Result<T, Error> {
        let mut alarm = Alarm::default();
        poll_fn(|cx| {
            alarm.clear();
            self.attentive();
            loop {
                self.look();
                if let Some(done) = step(self).transpose() {
                    return Poll::Ready(done);
                }
                let now = executor::now();
                if deadline.is_some_and(|d| now >= d) {
                    return Poll::Ready(Err(Error::TimedOut));
                }
                if self.prepare() {
                    // Peers are looked at from time to time.
                    let mut at = now.saturating_add(CHECK_NS);
                    at = at.min(deadline.unwrap_or(at));
                    at = at.min(self.next_visible().unwrap_or(at));
                    alarm.set(at, cx);
                    executor::watch(cx.waker().clone());
                    return Poll::Pending;
                }
            }
        })
        .await
    }

    /// Receives a message like [`recv`](Station::recv), for a task: other tasks run meanwhile.
    ///
    /// # Errors
    ///
    /// The errors of [`recv`](Station::recv).
    pub async fn recv_async(
        &mut self,
        bytes: &mut Vec<u8>,
        deadline: Option<u64>,
    ) -> Result<Envelope, Error> {
        self.until(deadline, |end| {
            let received = end.try_recv(bytes)?;
            if received.is_none() {
                end.check_peers()?;
            }
            Ok(received)
        })
        .await
    }

    /// Sends a message like [`send`](Station::send), for a task. The message is sent at once or not at all,
    /// so it must not be larger than the ring.
    ///
    /// # Errors
    ///
    /// The errors of [`send`](Station::send).
    pub async fn send_async(
        &mut self,
        to: usize,
        level: Level,
        tag: u64,
        bytes: &[u8],
        deadline: Option<u64>,
    ) -> Result<(), Error> {
        self.with_room(to, level, bytes.len(), deadline, |end| {
            end.try_send(to, level, tag, bytes)
        })
        .await
    }

    async fn with_room<T>(
        &mut self,
        to: usize,
        level: Level,
        bytes: usize,
        deadline: Option<u64>,
        mut send: impl FnMut(&mut Self) -> Result<T, Error>,
    ) -> Result<T, Error> {
        self.until(deadline, |end| {
            match send(end) {
                Err(Error::Full) => end.want_room(to, level, bytes)?,
                done => return done.map(Some),
            }
            match send(end) {
                Err(Error::Full) => end.check_peer(to).map(|()| None),
                done => done.map(Some),
            }
        })
        .await
    }

    /// Makes a call like [`call`](Station::call), for a task. The question is sent at once or not at all.
    ///
    /// # Errors
    ///
    /// The errors of [`call`](Station::call).
    pub async fn call_async(
        &mut self,
        to: usize,
        level: Level,
        tag: u64,
        bytes: &[u8],
        reply: &mut Vec<u8>,
        deadline: Option<u64>,
    ) -> Result<Envelope, Error> {
        let id = self
            .with_room(to, level, bytes.len(), deadline, |end| {
                end.begin_call(to, level, tag, bytes)
            })
            .await?;
        let call = Calling { end: self, id };
        let check = |end: &mut Endpoint| {
            if let Some(answer) = end.take_reply(id, reply)? {
                return Ok(Some(answer));
            }
            match end.check_peer(to) {
                Ok(()) => Ok(None),
                // What it has said before is still there.
                Err(e) => end.take_reply(id, reply)?.map(Some).ok_or(e),
            }
        };
        call.end.until(deadline, check).await
    }
}

/// A call that is under way. Dropping it cancels the call, also when its task is dropped.
struct Calling<'a> {
    end: &'a mut Endpoint,
    id: u64,
}

impl Drop for Calling<'_> {
    fn drop(&mut self) {
        self.end.cancel(self.id);
    }
}
