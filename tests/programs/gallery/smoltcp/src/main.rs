//! smoltcp: TCP, UDP and ping over IPv4 and IPv6 on a lossy Ethernet, moving within the device that the stack calls.
#![no_std]
#![no_main]

extern crate alloc;

use alloc::collections::VecDeque;

use gallery::*;
use smoltcp::iface::{Config, Interface, SocketSet};
use smoltcp::phy::{Device, DeviceCapabilities, Medium, RxToken, TxToken};
use smoltcp::socket::{icmp, tcp, udp};
use smoltcp::time::Instant;
use smoltcp::wire::{
    EthernetAddress, EthernetFrame, Icmpv4Packet, Icmpv4Repr, IpAddress, IpCidr, PrettyPrinter,
};

/// A wire that leads back, loses some frames and moves the thread with each.
struct Wire {
    frames: VecDeque<Vec<u8>>,
    seed: Seeded,
    sent: u64,
    lost: u64,
    sum: u64,
}

struct Received(Vec<u8>);
struct Sent<'a>(&'a mut Wire);

impl RxToken for Received {
    fn consume<R, F: FnOnce(&[u8]) -> R>(self, f: F) -> R {
        hop();
        f(&self.0)
    }
}

impl TxToken for Sent<'_> {
    fn consume<R, F: FnOnce(&mut [u8]) -> R>(self, len: usize, f: F) -> R {
        let mut frame = vec![0; len];
        let result = f(&mut frame);
        hop();
        let wire = self.0;
        wire.sent += 1;
        wire.sum = wire.sum.rotate_left(1) ^ digest(&frame);
        if wire.sent < 12 {
            say!(
                "{}",
                PrettyPrinter::<EthernetFrame<&'static [u8]>>::new("", &&frame[..])
            );
        }
        if wire.sent > 12 && wire.seed.below(9) == 0 {
            wire.lost += 1;
        } else {
            wire.frames.push_back(frame);
        }
        result
    }
}

impl Device for Wire {
    type RxToken<'a> = Received;
    type TxToken<'a> = Sent<'a>;

    fn receive(&mut self, _: Instant) -> Option<(Received, Sent<'_>)> {
        let frame = self.frames.pop_front()?;
        Some((Received(frame), Sent(self)))
    }

    fn transmit(&mut self, _: Instant) -> Option<Sent<'_>> {
        Some(Sent(self))
    }

    fn capabilities(&self) -> DeviceCapabilities {
        let mut all = DeviceCapabilities::default();
        (all.medium, all.max_transmission_unit) = (Medium::Ethernet, 600);
        all
    }
}

fn stream() -> tcp::Socket<'static> {
    let buffer = || tcp::SocketBuffer::new(vec![0; 2048]);
    tcp::Socket::new(buffer(), buffer())
}

fn talk(to: IpAddress, seed: &mut Seeded) -> Result<()> {
    let mut wire = Wire {
        frames: VecDeque::new(),
        seed: seed.clone(),
        sent: 0,
        lost: 0,
        sum: 0,
    };
    let mut config = Config::new(EthernetAddress([2, 0, 0, 0, 0, 1]).into());
    config.random_seed = seed.word();
    let mut interface = Interface::new(config, &mut wire, Instant::ZERO);
    interface.update_ip_addrs(|all| {
        let _ = all.push(IpCidr::new(to, if to.is_multicast() { 4 } else { 24 }));
    });
    let mut sockets = SocketSet::new(Vec::new());
    let (server, client) = (sockets.add(stream()), sockets.add(stream()));
    let packets = || udp::PacketBuffer::new(vec![udp::PacketMetadata::EMPTY; 4], vec![0; 1024]);
    let datagrams = sockets.add(udp::Socket::new(packets(), packets()));
    sockets
        .get_mut::<tcp::Socket<'_>>(server)
        .listen(80)
        .map_err(failed)?;
    sockets
        .get_mut::<udp::Socket<'_>>(datagrams)
        .bind(53)
        .map_err(failed)?;
    sockets
        .get_mut::<tcp::Socket<'_>>(client)
        .connect(interface.context(), (to, 80), 49_152)
        .map_err(failed)?;

    let data = seed.prose(1200).into_bytes();
    let (mut offered, mut found, mut questions, mut heard) = (0, Vec::new(), 0u8, 0u64);
    let mut now = Instant::ZERO;
    while now < Instant::from_secs(400) && (found.len() < data.len() || heard < 5) {
        interface.poll(now, &mut wire, &mut sockets);
        let socket = sockets.get_mut::<tcp::Socket<'_>>(client);
        if socket.can_send() && offered < data.len() {
            offered += socket.send_slice(&data[offered..]).map_err(failed)?;
        }
        let socket = sockets.get_mut::<tcp::Socket<'_>>(server);
        while socket.can_recv() {
            let piece = socket.recv(|bytes| {
                hop();
                (bytes.len(), bytes.to_vec())
            });
            found.extend(piece.map_err(failed)?);
        }
        let socket = sockets.get_mut::<udp::Socket<'_>>(datagrams);
        if socket.can_recv() {
            let (text, from) = socket.recv().map_err(failed)?;
            heard += text.len() as u64;
            say!("{from}: {text:?}");
        } else if questions < 40 && socket.can_send() {
            questions += 1;
            socket
                .send_slice(&[questions; 3], (to, 53))
                .map_err(failed)?;
        }
        let wait = interface
            .poll_delay(now, &sockets)
            .map_or(100, |d| d.total_millis());
        now += smoltcp::time::Duration::from_millis(wait.clamp(1, 1000));
    }
    let state = sockets.get::<tcp::Socket<'_>>(client).state();
    say!(
        "{to}: {} of {} bytes, equal: {}, {state}, {now}",
        found.len(),
        data.len(),
        found == data
    );
    say!(
        "{} frames, {} lost, {:016x}",
        wire.sent,
        wire.lost,
        wire.sum
    );
    Ok(())
}

fn program() -> Result<()> {
    let mut seed = Seeded(28);
    talk(IpAddress::v4(192, 168, 1, 1), &mut seed)?;
    talk(IpAddress::v6(0xfd00, 0, 0, 0, 0, 0, 0, 1), &mut seed)?;
    let caps = smoltcp::phy::ChecksumCapabilities::default();
    for n in 0..20u16 {
        let data = seed.bytes(usize::from(n) * 3);
        let ping = Icmpv4Repr::EchoRequest {
            ident: 7,
            seq_no: n,
            data: &data,
        };
        let mut bytes = vec![0; ping.buffer_len()];
        ping.emit(&mut Icmpv4Packet::new_unchecked(&mut bytes), &caps);
        hop();
        let packet = Icmpv4Packet::new_checked(&bytes[..]).map_err(failed)?;
        say!(
            "{packet} {} {}",
            Icmpv4Repr::parse(&packet, &caps) == Ok(ping),
            packet.verify_checksum()
        );
        bytes[5] ^= 1;
        say!(
            "  {:?}",
            Icmpv4Packet::new_checked(&bytes[..]).map(|p| p.verify_checksum())
        );
    }
    say!("{:?}", icmp::Endpoint::Ident(3));
    Ok(())
}

#[dyad::main]
fn main() -> Result<()> {
    play(program)
}
