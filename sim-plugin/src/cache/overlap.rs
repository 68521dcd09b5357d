// SPDX-License-Identifier: GPL-2.0-or-later
//! Accesses of a CPU that are under way beside each other: [`dyad_sim_model::overlap`] decides what it waits for.

use dyad_sim_model::coherent;
use dyad_sim_model::overlap::{Access, Wait, Window};

use super::{Cpu, Kind, Probe};
use crate::clock;
use crate::tlb::Frame;

impl Cpu {
    /// The CPU's time.
    fn now(&self) -> u64 {
        clock::get().map_or(0, |clock| clock.reading(self.number, 0).0)
    }

    /// Waits for what is under way.
    fn wait(&mut self, wait: &Wait) {
        if wait.cycles > 0 {
            self.core.has_waited(&wait.stalls);
            self.pass(wait.cycles);
        }
    }

    /// An access beside others that are under way.
    #[cold]
    pub(super) fn overlap(
        &mut self,
        mut window: Window,
        kind: u8,
        frame: Frame,
        address: u64,
        probe: &impl Probe,
    ) {
        let (lower, upper) = self.words.instructions();
        let access = Access {
            kind: match kind {
                Kind::LOAD => coherent::Kind::Load,
                Kind::STORE => coherent::Kind::Store,
                _ => coherent::Kind::Rmw,
            },
            address,
            value: probe.value() as u64,
            instruction: lower + upper,
        };
        let wait = window.before(&access, self.now());
        self.wait(&wait);
        let before = self.core.stalls();
        let cycles = self.touch_kind(kind, frame, address);
        let stalls = self.core.stalls().since(&before);
        match window.after(&access, self.now(), stalls) {
            Some(wait) => {
                self.core.has_not_waited(&stalls);
                self.pass(cycles.saturating_sub(stalls.total()));
                self.wait(&wait);
            }
            None => self.pass(cycles),
        }
        self.window = Some(window);
    }

    /// Waits for all that is under way.
    pub(super) fn drain(&mut self) {
        if let Some(mut window) = self.window.take() {
            let wait = window.drain(self.now());
            self.wait(&wait);
            self.window = Some(window);
        }
    }
}
