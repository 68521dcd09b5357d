//! One attack: built, played, judged, taken down.

use core::fmt;
use core::sync::atomic::Ordering::{Acquire, Relaxed, Release};

use dyad_abi::{Error, Result};
use dyad_hostile::image::Image;
use dyad_hostile::{Broken, during};
use dyad_services::first::{CXL, HOME};
use dyad_services::rt;
use dyad_sys::cap::{Cap, Thread};

use crate::build::{Comp, Frames, INVOKE, ITSELF, start};
use crate::cases::Case;
use crate::sched;
use crate::shared::{
    ATTACKER, BROKEN_INTO, CLIENT, OWNER, SECRET_WORD, VICTIM, at, state, word, word_of, wrong,
};
use crate::store::{Store, Stuck};

/// Fused time that an attack may take.
const TIME_NS: u64 = 20_000_000_000;
/// Fused time within which the victim has to go on.
const ALIVE_NS: u64 = 10_000_000_000;
/// Rounds of the victim that show that it goes on.
const ROUNDS: u64 = 3;
/// How often an attack is played that has not come to try anything, because the host has run others.
const PLAYS: u32 = 3;

/// Ids of the attacker's threads; its first, and those of its helpers.
pub const ATTACKERS: core::ops::Range<u32> = 72..76;
/// Ids of the victim's threads.
pub const VICTIMS: core::ops::Range<u32> = 80..82;
/// Tags of threads: the attacker's from 1 on.
const ATTACKER_TAG: usize = 1;
/// The victim's.
pub const VICTIM_TAG: usize = 8;
/// Priorities.
const ATTACKER_PRIORITY: u8 = 10;
const VICTIM_PRIORITY: u8 = 20;

/// What one attack needs of the warden.
pub struct Warden {
    /// Frames, slots, addresses.
    pub store: Store,
    /// What components are made of.
    pub image: Image,
    /// Frames of victim and attacker.
    pub frames: [Frames; 2],
}

/// An attack that is being played.
pub struct Scene<'a> {
    /// Frames, slots, addresses.
    pub store: &'a mut Store,
    /// What components are made of.
    pub image: &'a Image,
    /// The attacker.
    pub attacker: Comp,
    /// The victim.
    pub victim: Comp,
    /// The attacker's threads, its first one included.
    pub threads: [Option<Cap<Thread>>; 4],
    /// The victim's first thread.
    pub victim_thread: Cap<Thread>,
}

/// What has come of an attack.
pub enum Outcome {
    /// It was refused, and nothing has changed.
    Held {
        /// Attempts.
        tries: u64,
    },
    /// It has achieved something, or shown something else that is wrong.
    Failed(Failure),
    /// It could not be built or taken down.
    Broken(Broken),
}

/// What is wrong.
#[derive(Clone, Copy)]
pub enum Failure {
    /// The attacker did what it must not, in this line of the case, with this value.
    Achieved(u64, u64),
    /// It was refused with this status, which is not one that it must get; or a step of its own was.
    Odd(u64, u64),
    /// The victim has found something.
    Victim(u64, u64),
    /// Code of the attacker's choice has run in the victim.
    BrokenInto,
    /// The victim's secret has changed.
    Secret,
    /// The victim does not go on.
    Stuck,
    /// The scheduler of a CPU does not go on: its line.
    Scheduler(usize),
    /// The attacker has not come to its end: why its thread stopped last.
    Unfinished(Option<dyad_abi::cap::Stopped>),
    /// The attacker has tried nothing.
    Nothing,
    /// What the warden looked for in this case.
    Case(&'static str),
    /// Frames that have not come back: how many, and one of them.
    Frames(u64, Option<Stuck>),
}

impl fmt::Display for Outcome {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Outcome::Held { tries } => write!(f, "{tries} attempts"),
            Outcome::Broken(broken) => broken.fmt(f),
            Outcome::Failed(why) => match *why {
                Failure::Achieved(line, value) => {
                    write!(f, "the attempt in line {line} succeeded with {value:#x}")
                }
                Failure::Odd(line, status) => {
                    let text = Error::from_code(status).map_or("?", Error::text);
                    write!(f, "line {line}: refused with {status}: {text}")
                }
                Failure::Victim(what, detail) => {
                    write!(f, "the victim: {} ({detail:#x})", wrong::name(what))
                }
                Failure::BrokenInto => f.write_str("chosen code has run in the victim"),
                Failure::Secret => f.write_str("the victim's secret has changed"),
                Failure::Stuck => f.write_str("the victim does not go on"),
                Failure::Scheduler(line) => {
                    write!(f, "the scheduler of line {line} does not go on")
                }
                Failure::Unfinished(why) => write!(f, "the attacker did not finish: {why:?}"),
                Failure::Nothing => f.write_str("nothing was tried"),
                Failure::Case(what) => f.write_str(what),
                Failure::Frames(n, None) => write!(f, "{n} frames have not come back"),
                Failure::Frames(n, Some(s)) => {
                    let Stuck {
                        pool,
                        at,
                        word,
                        status,
                    } = s;
                    write!(
                        f,
                        "{n} frames have not come back: frame {at} of pool {pool} is {word:#x}, status {status}"
                    )
                }
            },
        }
    }
}

fn now() -> u64 {
    rt::hardware(HOME).now().unwrap_or(0)
}

impl Warden {
    /// Plays an attack from its beginning to its end, and again if it has not come to try anything.
    pub fn play(&mut self, n: usize, case: &Case) -> Outcome {
        let mut outcome = self.play_once(n, case);
        for _ in 1..PLAYS {
            let Outcome::Failed(Failure::Nothing) = outcome else {
                break;
            };
            outcome = self.play_once(n, case);
        }
        outcome
    }

    fn play_once(&mut self, n: usize, case: &Case) -> Outcome {
        let mut scene = match during("building", self.build(n, case)) {
            Ok(scene) => scene,
            Err(broken) => return Outcome::Broken(broken),
        };
        let played = scene.play(case);
        let taken = scene.take_down();
        let (victim, attacker) = (scene.victim, scene.attacker);
        let back = taken.and_then(|()| self.give_back(&victim, &attacker));
        match (played, during("taking down", back)) {
            (_, Err(broken)) | (Err(Stop::Broken(broken)), _) => Outcome::Broken(broken),
            (Err(Stop::Failed(why)), _) => Outcome::Failed(why),
            (Ok(_), Ok(missing)) if missing != 0 => {
                Outcome::Failed(Failure::Frames(missing, self.store.stuck))
            }
            (Ok(tries), Ok(_)) => Outcome::Held { tries },
        }
    }

    fn build(&mut self, n: usize, case: &Case) -> Result<Scene<'_>> {
        let [victim_frames, attacker_frames] = self.frames;
        let (store, image) = (&mut self.store, &self.image);
        let code = match case.far {
            true => store.isas,
            false => 1 << store.here.index(),
        };
        let (mut victim, mailbox) = Comp::new(store, image, victim_frames, (VICTIMS, code), None)?;
        let other = Some((mailbox, victim.shown));
        let (mut attacker, _) = Comp::new(store, image, attacker_frames, (ATTACKERS, code), other)?;
        let own = victim.entry(store, image, OWNER)?;
        victim.give(at::SERVICE, own, INVOKE)?;
        let client = victim.entry(store, image, CLIENT)?;
        attacker.give(at::SERVICE, client, INVOKE)?;
        word_of(victim.secret, 0).store(SECRET_WORD, Relaxed);
        word_of(attacker.report, word::NOTES - 1).store(n as u64, Relaxed);
        word_of(attacker.report, word::NOTES - 2).store(image.entry(), Relaxed);
        let life = (VICTIM_TAG, VICTIM_PRIORITY);
        let victim_thread = victim.thread(store, life, VICTIMS.start, VICTIM)?;
        victim.give(at::THREAD, victim_thread, ITSELF)?;
        let mut threads = [None; 4];
        for (i, id) in (0..=case.helpers).zip(ATTACKERS) {
            let tag = ATTACKER_TAG + i as usize;
            let arg = ATTACKER | (n as u64) << 8 | i;
            let life = (tag, ATTACKER_PRIORITY);
            threads[i as usize] = Some(attacker.thread(store, life, id, arg)?);
        }
        let first = threads[0].ok_or(Error::Corrupt)?;
        attacker.give(at::THREAD, first, ITSELF)?;
        Ok(Scene {
            store,
            image,
            attacker,
            victim,
            threads,
            victim_thread,
        })
    }

    fn give_back(&mut self, victim: &Comp, attacker: &Comp) -> Result<u64> {
        let store = &mut self.store;
        store.stuck = None;
        store.clear_window()?;
        store.clear_slots()?;
        let blocks = store.blocks;
        let missing =
            attacker.give_back(store)? + victim.give_back(store)? + store.sweep(CXL, &blocks)?;
        if missing == 0 {
            store.stuck = None;
        }
        store.quiesce()?;
        Ok(missing)
    }
}

/// Why an attack is over before its end.
pub enum Stop {
    /// It has shown something wrong.
    Failed(Failure),
    /// Something of the warden's own was refused.
    Broken(Broken),
}

impl From<Broken> for Stop {
    fn from(broken: Broken) -> Stop {
        Stop::Broken(broken)
    }
}

impl Scene<'_> {
    /// Thread `n` of the attacker.
    ///
    /// # Errors
    ///
    /// `NotFound` if the case has no such thread.
    pub fn thread(&self, n: usize) -> Result<Cap<Thread>> {
        self.threads
            .get(n)
            .copied()
            .flatten()
            .ok_or(Error::NotFound)
    }

    /// A word of the attacker's report.
    pub fn told(&self, n: usize) -> u64 {
        word_of(self.attacker.report, n).load(Acquire)
    }

    /// A word of the case, as the attacker has left it.
    pub fn note(&self, n: usize) -> u64 {
        self.told(word::NOTES + n)
    }

    /// A word of the victim's report.
    pub fn victim_says(&self, n: usize) -> u64 {
        word_of(self.victim.report, n).load(Acquire)
    }

    /// Writes a word of the victim's report.
    pub fn tell_victim(&self, n: usize, value: u64) {
        word_of(self.victim.report, n).store(value, Release);
    }

    /// Tells the attacker a word of the case.
    pub fn tell(&self, n: usize, value: u64) {
        word_of(self.attacker.report, word::NOTES + n).store(value, Release);
    }

    /// Starts the victim, gives the attacker what the case says, lets it act, and looks.
    fn play(&mut self, case: &Case) -> core::result::Result<u64, Stop> {
        during("what the attack needs", (case.grant)(self))?;
        during("the victim", start(self.victim_thread, 0, 0))?;
        if !self.until(ALIVE_NS, |s| s.victim_says(word::STATE) == state::AT_WORK) {
            return Err(Stop::Failed(Failure::Stuck));
        }
        let last = self.store.cpus - 1;
        for n in 1..=case.helpers as usize {
            if let Ok(helper) = self.thread(n)
                && case.starts_helpers
            {
                // The second helper is on the last node, the others are on the last CPU of the first.
                let (node, cpu) = match n {
                    2 => (self.store.nodes - 1, 0),
                    _ => (0, last),
                };
                during("a helper", start(helper, node, cpu))?;
            }
        }
        let first = during("the attacker", self.thread(0))?;
        during("the attacker", start(first, 0, 0))?;
        let end = now() + TIME_NS;
        while self.told(word::STATE) != state::DONE {
            sched::turn(0);
            let asked = self.told(word::ASK);
            if asked != self.told(word::ANSWER) {
                during("a step", (case.step)(self, asked))?;
                word_of(self.attacker.report, word::ANSWER).store(asked, Release);
            }
            if sched::has_ended(ATTACKER_TAG) && self.told(word::STATE) != state::DONE
                || now() > end
            {
                self.judge_victim()?;
                let why = sched::stopped(ATTACKER_TAG);
                return Err(Stop::Failed(Failure::Unfinished(why)));
            }
        }
        // It goes on, and finds nothing.
        let rounds = self.victim_says(word::ROUNDS) + ROUNDS;
        let alive = self.until(ALIVE_NS, |s| s.victim_says(word::ROUNDS) >= rounds);
        self.judge_attacker()?;
        self.judge_victim()?;
        if !alive {
            return Err(Stop::Failed(Failure::Stuck));
        }
        self.judge_schedulers()?;
        if let Some(what) = (case.look)(self) {
            return Err(Stop::Failed(Failure::Case(what)));
        }
        Ok(self.told(word::TRIES))
    }

    fn judge_attacker(&self) -> core::result::Result<(), Stop> {
        let fail = |why| Err(Stop::Failed(why));
        if self.told(word::ACHIEVED) != 0 {
            let at = word::ACHIEVED_AT;
            return fail(Failure::Achieved(self.told(at), self.told(at + 1)));
        }
        if word_of(self.victim.secret, 1).load(Acquire) == BROKEN_INTO {
            return fail(Failure::BrokenInto);
        }
        if self.told(word::ODD) != 0 {
            let at = word::ODD_AT;
            return fail(Failure::Odd(self.told(at), self.told(at + 1)));
        }
        match self.told(word::TRIES) {
            0 => fail(Failure::Nothing),
            _ => Ok(()),
        }
    }

    /// Every worker goes round, whatever the attacker has done to its CPU.
    fn judge_schedulers(&mut self) -> core::result::Result<(), Stop> {
        for line in sched::lines(self.store.nodes, self.store.cpus).skip(1) {
            let turns = sched::turns(line);
            if !self.until(ALIVE_NS, |_| sched::turns(line) != turns) {
                return Err(Stop::Failed(Failure::Scheduler(line)));
            }
        }
        Ok(())
    }

    fn judge_victim(&self) -> core::result::Result<(), Stop> {
        let fail = |why| Err(Stop::Failed(why));
        if word_of(self.victim.secret, 1).load(Acquire) == BROKEN_INTO {
            return fail(Failure::BrokenInto);
        }
        if word_of(self.victim.secret, 0).load(Acquire) != SECRET_WORD {
            return fail(Failure::Secret);
        }
        match self.victim_says(word::WRONG) {
            0 => Ok(()),
            what => fail(Failure::Victim(what, self.victim_says(word::WRONG_DETAIL))),
        }
    }

    /// Gives slices until something is so, or the time is up: whether it is so.
    pub fn until(&mut self, ns: u64, is_so: impl Fn(&Self) -> bool) -> bool {
        let end = now() + ns;
        loop {
            if is_so(self) {
                return true;
            }
            if now() > end {
                return false;
            }
            sched::turn(0);
        }
    }

    fn take_down(&mut self) -> Result<()> {
        self.attacker.take_down(self.store, self.image)?;
        self.victim.take_down(self.store, self.image)
    }
}
