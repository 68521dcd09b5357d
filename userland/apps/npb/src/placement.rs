//! On which of two nodes each phase runs, and what the timed ones have taken.

use dyad::prelude::thread::*;
use dyad::report;
use dyad::system::Traffic;
use npb_kernels::kernel::Phase;

/// How phases are placed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Placement {
    /// All run at home.
    Home,
    /// Each runs on the other node than the one before.
    Phases,
    /// Each iteration runs on the other node than the one before: what comes before the first away, the first at home,
    /// and what comes after the last at home.
    Alternate,
    /// Iterations run away. Between two of them the thread comes home.
    Offload,
}

impl Placement {
    pub const ALL: [Placement; 4] = [
        Placement::Home,
        Placement::Phases,
        Placement::Alternate,
        Placement::Offload,
    ];

    /// What the option calls it.
    pub const fn name(self) -> &'static str {
        match self {
            Placement::Home => "home",
            Placement::Phases => "phases",
            Placement::Alternate => "alternate",
            Placement::Offload => "offload",
        }
    }
}

/// A node, as seen from a benchmark.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Side {
    Home,
    Away,
}

/// The way of a benchmark over the nodes.
#[derive(Clone, Copy, Debug)]
pub struct Itinerary {
    place: Placement,
    /// Phases so far.
    phases: u32,
    /// The iteration of the phase before.
    iteration: u32,
    /// Whether there was an iteration.
    iterates: bool,
}

impl Itinerary {
    pub const fn new(place: Placement) -> Itinerary {
        Itinerary {
            place,
            phases: 0,
            iteration: 0,
            iterates: false,
        }
    }

    /// Where it goes before a phase, if it is not there: perhaps to one side first.
    pub fn before(&mut self, phase: Phase) -> (Option<Side>, Side) {
        let is_new = phase.iteration != self.iteration;
        self.iterates |= phase.iteration > 0;
        self.iteration = phase.iteration;
        let odd = self.phases % 2 == 1;
        self.phases += 1;
        let away = |is_away| if is_away { Side::Away } else { Side::Home };
        let first =
            (is_new && phase.timed && self.place == Placement::Offload).then_some(Side::Home);
        let side = match self.place {
            Placement::Home => Side::Home,
            Placement::Phases => away(odd),
            Placement::Alternate if phase.iteration == 0 => away(!self.iterates),
            Placement::Alternate => away(phase.iteration.is_multiple_of(2)),
            Placement::Offload => away(phase.timed),
        };
        (first, side)
    }
}

/// What the timed phases have taken.
#[derive(Clone, Copy, Debug, Default)]
pub struct Taken {
    began: Option<Instant>,
    /// What had been counted before.
    before: Traffic,
    /// From the beginning of the first one, and of the move before it, to the end of the last one.
    pub time: Duration,
    /// Until that end, as it was counted there.
    traffic: Option<Traffic>,
}

impl Taken {
    /// Before the moves to a phase.
    pub fn before(&mut self, phase: Phase) -> Result<()> {
        match (phase.timed, self.began) {
            (true, None) => {
                self.before = Traffic::here()?;
                self.began = Some(Instant::now());
            }
            (false, Some(_)) => self.end()?,
            _ => {}
        }
        Ok(())
    }

    /// After a phase.
    pub fn after(&mut self, phase: Phase) {
        if let Some(began) = self.began.filter(|_| phase.timed) {
            self.time = began.elapsed();
        }
    }

    /// After all phases.
    pub fn end(&mut self) -> Result<()> {
        if self.traffic.is_none() {
            self.traffic = Some(Traffic::here()?);
        }
        Ok(())
    }

    /// Whether copies of pages are still to be counted, away: they are counted where they are.
    pub fn lacks_replicas(&self) -> bool {
        self.traffic
            .is_some_and(|t| t.messages > 0 && t.replicas == 0)
    }

    /// Counts copies here.
    pub fn count_replicas(&mut self) -> Result<()> {
        if let Some(traffic) = &mut self.traffic {
            traffic.replicas = Traffic::here()?.replicas;
        }
        Ok(())
    }

    /// Reports counters of a benchmark.
    pub fn report(&self, name: &str) {
        let traffic = self.traffic.unwrap_or_default();
        let time = u64::try_from(self.time.as_nanos()).unwrap_or(u64::MAX);
        report::counter(&format!("{name}.timed-ns"), time);
        report::counter(&format!("{name}.page-messages"), traffic.messages);
        report::counter(&format!("{name}.replicas"), traffic.replicas);
        let timed = |of: fn(&Traffic) -> u64| of(&traffic).saturating_sub(of(&self.before));
        report::counter(&format!("{name}.timed-messages"), timed(|t| t.messages));
        report::counter(&format!("{name}.timed-contents"), timed(|t| t.contents));
    }
}
