//! What init has the peers of a group do: begin, hear of deaths, end, and tell what they have counted.

use dyad_abi::ident::MAX_NODES;
use dyad_abi::service::peer::{BLOCK_FRAMES, Counted, WINDOW, op};
use dyad_abi::service::{CONSOLE_BUFFER, thread_id};
use dyad_abi::user::{MAX_PROGRAM_THREADS, PAGE_SIZE, ReportKind, tcb_address};
use dyad_abi::{Error, NodeId};
use dyad_services::rt;

use super::{Group, Peer};
use crate::program::Program;
use crate::system::FIRST;
use crate::trouble::{Done, During};

impl Group {
    /// The other processes.
    pub fn processes(&self) -> impl Iterator<Item = &Program> {
        self.others.iter().flatten()
    }

    /// The peer of a process.
    pub fn peer_of(&self, process: &Program) -> Option<&Peer> {
        self.peers[process.home.index()].as_ref()
    }

    /// Makes the peers ready. They start the threads of their processes.
    pub fn set_going(&self) -> Done<()> {
        let peers = self.peers.iter().flatten();
        let peers = peers.flat_map(|p| {
            let threads = p.threads.iter().flatten();
            threads.map(|&thread| (p.program.home, thread))
        });
        for (node, thread) in peers {
            thread
                .resume_on(node, FIRST)
                .during("making a thread ready")?;
        }
        Ok(())
    }

    /// Has all threads go on that wait in peers on nodes whose schedulers run. Threads of others have been lost.
    pub fn end(&self, is_going: impl Fn(NodeId) -> bool) -> Done<()> {
        let peers = self.peers.iter().flatten();
        for peer in peers.filter(|p| is_going(p.program.home)) {
            let stopped = || match peer.entry.request([op::END, 0, 0, 0]) {
                // Its threads have been lost with it.
                Err(Error::NodeDead) => Ok(true),
                stopped => stopped.map(|n| n != 0),
            };
            crate::takedown::until(stopped).during("end at a peer")?;
        }
        Ok(())
    }

    /// Tells the peers that live of each node that has died. What does not succeed is done when init looks the next time.
    pub fn tell_deaths(&mut self, has_died: impl Fn(NodeId) -> bool) {
        for node in NodeId::first(MAX_NODES).filter(|&n| has_died(n)) {
            if self.told[node.index()] {
                continue;
            }
            let peers = self.peers.iter().flatten();
            let mut living = peers.filter(|p| !has_died(p.program.home));
            self.told[node.index()] = living.all(|peer| {
                let told = peer.entry.request([op::DIED, node.index() as u64, 0, 0]);
                // Of that one's death the others are told next.
                matches!(told, Ok(_) | Err(Error::NodeDead))
            });
        }
    }

    /// Reports what the peers have counted on nodes whose schedulers run.
    pub fn report(&self, is_going: impl Fn(NodeId) -> bool) {
        let peers = self.peers.iter().flatten();
        for peer in peers.filter(|p| is_going(p.program.home)) {
            let parts = rt::info().is_ok_and(|info| info.fault_parts != 0);
            let is_reported = |c: &&Counted| parts || !c.is_of_parts();
            let all = Counted::ALL.iter().filter(is_reported);
            let all = all.filter(|c| !c.is_of_a_move());
            for &counted in all {
                let count = peer.entry.request([op::COUNTER, counted as u64, 0, 0]);
                let Ok(count) = count else { continue };
                let hardware = rt::hardware(crate::blocks::here());
                let _ = hardware.report(ReportKind::Counter, count, counted.name(), "");
            }
        }
    }

    /// Takes the memory of a process out of its peer: the window, control blocks, buffers of the console.
    pub fn leave(&self, process: &Program) -> dyad_abi::Result<()> {
        let Some(peer) = self.peer_of(process) else {
            return Ok(());
        };
        let space = peer.program.space;
        for isa in crate::program::isas_of(peer.program.isas) {
            for block in 0..peer.blocks {
                crate::takedown::unmap(space, isa, WINDOW + block * BLOCK_FRAMES * PAGE_SIZE)?;
            }
            for n in 0..MAX_PROGRAM_THREADS {
                let block = tcb_address(thread_id(process.layout, n));
                crate::takedown::unmap(space, isa, block)?;
                let text = CONSOLE_BUFFER + n * PAGE_SIZE;
                crate::takedown::unmap(space, isa, text)?;
            }
        }
        space.shootdown(
            WINDOW,
            (peer.blocks * BLOCK_FRAMES * PAGE_SIZE).max(PAGE_SIZE),
        )
    }
}
