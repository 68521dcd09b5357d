//! The system as it runs: CPUs are given to their schedulers, and nodes that come back get what belongs to
//! them.

use dyad_abi::Result;
use dyad_services::rt;

use super::*;
use crate::service::say;

impl System {
    /// Gives every CPU to its scheduler, the one this runs on last.
    pub fn set_going(&mut self) -> Done<()> {
        let builder = &mut self.builder;
        let here = (HOME, FIRST);
        let cpus = builder.cpus();
        let all = builder
            .nodes()
            .flat_map(move |n| cpus.clone().map(move |c| (n, c)));
        for (node, cpu) in all.filter(|&at| at != here).chain([here]) {
            let isa = 1 << builder.info.system.nodes[node.index()].isa;
            let line = scheduler_line(node, cpu);
            let thread = self
                .sched
                .thread(&mut builder.store, line, isa, (INFO_BASE, 0), None)
                .during("thread of sched")?;
            self.roots[node.index()][cpu.index()] = Some(thread);
            rt::hardware(node)
                .start_cpu(cpu, thread)
                .during("starting a CPU")?;
        }
        Ok(())
    }

    /// Whether a node lives, and has its schedulers: a node that has come back has none before
    /// [`look_after_nodes`](Self::look_after_nodes) has started them.
    pub fn is_going(&self, node: NodeId) -> bool {
        wardens::lives(node, self.lives[node.index()].0)
    }

    /// Looks which nodes have died, and starts what belongs to those that have come back. `false`:
    /// something is to be done later, or may have been lost. Another leader may repeat each step.
    pub fn look_after_nodes(&mut self) -> bool {
        let mut all_well = true;
        for node in self.builder.nodes() {
            let (life, ended) = self.lives[node.index()];
            if wardens::lives(node, life) {
                continue;
            }
            all_well = false;
            if !ended {
                // In this order: a leader that succeeds this one may count the death again, but never leaves it out.
                self.deaths += 1;
                self.lives[node.index()].1 = true;
                say(format_args!("node {node} has died"));
            }
            let Ok(now) = rt::hardware(node).node_state(node) else {
                continue;
            };
            if !now.is_live() || now.incarnation == life {
                continue;
            }
            match self.revive(node, now.incarnation) {
                Ok(()) => {
                    self.lives[node.index()] = (now.incarnation, false);
                    say(format_args!("node {node} has come back"));
                }
                // It may have died again, or its inbox is full.
                Err(e) => say(format_args!("node {node} has come back, but: {e}; again")),
            }
        }
        all_well
    }

    /// Starts the threads of a node that has come back. Can be repeated: those that have been started
    /// meanwhile are not ready to be configured.
    ///
    /// # Errors
    ///
    /// `Again`: the warden has not ended yet where its node's death has sent it, or has not begun yet on its node.
    fn revive(&mut self, node: NodeId, life: u32) -> Result<()> {
        let n = node.index() as u64;
        let again = |result: Result<()>| match result {
            // It lives: on its node, or on another one of the ISA, from where it goes home.
            Err(Error::NotReady) => Ok(false),
            other => other.map(|()| true),
        };
        for cpu in self.builder.cpus() {
            let Some(thread) = self.roots[node.index()][cpu.index()] else {
                continue;
            };
            let line = scheduler_line(node, cpu);
            if again(self.sched.restart(thread, line, (INFO_BASE, 0), None))? {
                rt::hardware(node).start_cpu(cpu, thread)?;
            }
        }
        let events = Some(self.events);
        let number = sched::tag(thread::QUIESCED + node.index() as u32);
        if let Some(thread) = self.rounds[node.index()]
            && again(
                self.quiesced
                    .restart(thread, n, (INFO_BASE | n, number), events),
            )?
        {
            thread.resume_on(node, FIRST)?;
        }
        let number = sched::tag(thread::WARDEN + node.index() as u32);
        let own = &self.builder.window.own;
        let names = (INFO_BASE | (SERVE + n), number);
        if let Some(thread) = self.wardens[node.index()] {
            match again(own.restart(thread, SERVE + n, names, events))? {
                true => thread.resume_on(node, FIRST)?,
                false if wardens::serves(node, life) => {}
                false => return Err(Error::Again),
            }
        }
        Ok(())
    }
}
