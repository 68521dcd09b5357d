//! What these machines do when the kernel asks for it.

use super::*;

impl<const A64: bool> Platform for Mock<A64> {
    const ISA: Isa = if A64 { Isa::Aarch64 } else { Isa::X86_64 };

    fn cpu() -> CpuId {
        current().local.id()
    }
    fn local() -> &'static CpuLocal {
        current().local
    }
    fn image_id() -> u64 {
        77
    }
    fn current_area() -> &'static RegArea {
        let t = current().local.thread.get().expect("no thread runs here");
        t.regs(Self::ISA)
    }
    fn complete_area(area: &RegArea, word: u64, args: [u64; 5]) {
        put(area, 0, [word]);
        put(area, 1, args);
        put(area, PARTIAL, [0]);
    }
    fn init_regs(area: &RegArea, entry: u64, stack_top: u64, arg: u64, tp: u64) {
        for w in &area.0 {
            w.store(0, Ordering::Relaxed);
        }
        for (i, v) in [
            (PC, entry),
            (SP, stack_top),
            (ARGUMENTS, arg),
            (THREAD_POINTER, tp),
        ] {
            area.0[i].store(v, Ordering::Relaxed);
        }
    }
    fn syscall_args(area: &RegArea) -> [u64; 6] {
        core::array::from_fn(|i| area.0[i].load(Ordering::Relaxed))
    }
    fn set_result(area: &RegArea, status: u64, value: u64) {
        area.0[6].store(status, Ordering::Relaxed);
        area.0[7].store(value, Ordering::Relaxed);
    }
    fn user_pc_fp(area: &RegArea) -> (u64, u64) {
        let w = |i: usize| area.0[i].load(Ordering::Relaxed);
        (w(PC), w(FRAME_POINTER))
    }
    fn user_pc_sp(area: &RegArea) -> (u64, u64) {
        let w = |i: usize| area.0[i].load(Ordering::Relaxed);
        (w(PC), w(SP))
    }
    fn set_user_pc_sp(area: &RegArea, pc: u64, sp: u64) {
        let user = |va| if va < USER_END { va } else { 0 };
        put(area, PC, [user(pc)]);
        put(area, SP, [user(sp)]);
    }
    fn call_registers(area: &RegArea) -> ([u64; 6], u64) {
        let w = |i: usize| area.0[i].load(Ordering::Relaxed);
        (core::array::from_fn(|i| w(ARGUMENTS + i)), w(RESULTS))
    }
    fn park(area: &RegArea, parked: &RegArea) {
        for i in [SP, FRAME_POINTER] {
            put(parked, i, [area.0[i].load(Ordering::Relaxed)]);
        }
    }
    fn set_at_gate(area: &RegArea, parked: &RegArea, pc: u64, args: [u64; 6], function: u64) {
        Self::park(parked, area);
        put(area, PC, [pc]);
        put(area, ARGUMENTS, args);
        put(area, FUNCTION, [function]);
        put(area, PARTIAL, [0]);
    }
    const KEEPS_FP: bool = A64;
    fn call_fp(area: &FpArea) -> ([u64; 8], [u64; 8]) {
        let w = |i: usize| area.0[i].load(Ordering::Relaxed);
        (core::array::from_fn(w), core::array::from_fn(|i| w(8 + i)))
    }
    fn take_call_fp(args: &[AtomicU64; 8], _kept: &[AtomicU64; 8]) {
        let (value, on) = current().fp.get();
        assert!(on, "this would trap in the kernel");
        args[0].store(value, Ordering::Relaxed);
    }
    fn give_call_fp(args: Option<&[AtomicU64; 8]>, _kept: Option<&[AtomicU64; 8]>) {
        load_fp(args.map_or(0, |a| a[0].load(Ordering::Relaxed)));
    }
    fn set_call_fp(area: &FpArea, args: [u64; 8], kept: [u64; 8]) {
        for (to, v) in area.0.iter().zip(args.into_iter().chain(kept)) {
            to.store(v, Ordering::Relaxed);
        }
    }
    fn set_frame_pointer(area: &RegArea, fp: u64) {
        put(area, FRAME_POINTER, [fp]);
    }
    fn set_entry(area: &RegArea, pc: u64) {
        put(area, PC, [pc]);
        put(area, SP, [0]);
    }
    fn set_return(area: &RegArea, pc: u64, sp: u64) {
        Self::set_user_pc_sp(area, pc, sp);
    }
    fn set_arguments(area: &RegArea, args: [u64; 6]) {
        put(area, ARGUMENTS, args);
        put(area, PARTIAL, [0]);
    }
    fn set_results(area: &RegArea, status: u64, results: [u64; 4]) {
        Self::set_result(area, status, results[0]);
        put(area, RESULTS, results);
        put(area, PARTIAL, [0]);
    }
    fn read_register(area: &RegArea, n: u64) -> Option<u64> {
        let word = area.0.get(usize::try_from(n).ok()?)?;
        Some(word.load(Ordering::Relaxed))
    }
    fn write_register(area: &RegArea, n: u64, value: u64) -> bool {
        let word = usize::try_from(n).ok().and_then(|n| area.0.get(n));
        if let Some(word) = word {
            word.store(value, Ordering::Relaxed);
        }
        word.is_some()
    }
    fn dump_regs(area: &RegArea, line: &mut dyn FnMut(&str, u64)) {
        line("pc", area.0[PC].load(Ordering::Relaxed));
    }
    fn unload_fp(area: &FpArea) -> [u64; FLOAT_WORDS] {
        core::array::from_fn(|i| area.0[i].load(Ordering::Relaxed))
    }
    fn load_fp(area: &FpArea, words: &[u64; FLOAT_WORDS]) {
        for (to, &from) in area.0.iter().zip(words) {
            to.store(from, Ordering::Relaxed);
        }
    }
    fn reset_fp() {
        did(Did::RestoredFp);
        load_fp(0);
    }
    fn fp_on() {
        let m = current();
        m.fp.set((m.fp.get().0, true));
    }
    fn fp_off() {
        let m = current();
        m.fp.set((m.fp.get().0, false));
    }
    fn save_fp(area: &FpArea) {
        did(Did::SavedFp);
        let (value, on) = current().fp.get();
        assert!(on, "this would trap in the kernel");
        area.0[0].store(value, Ordering::Relaxed);
    }
    fn restore_fp(area: &FpArea) {
        did(Did::RestoredFp);
        load_fp(area.0[0].load(Ordering::Relaxed));
    }
    fn resume_user(area: &'static RegArea) -> ! {
        assert_eq!(area.0[PARTIAL].load(Ordering::Relaxed), 0, "a partial area");
        resume_unwind(Box::new(Left::User(area.0[PC].load(Ordering::Relaxed))))
    }
    fn go_on(area: &'static RegArea) -> ! {
        Self::resume_user(area)
    }
    fn enter_user(area: &'static RegArea, pc: u64, args: [u64; 6]) -> ! {
        Self::set_arguments(area, args);
        Self::set_user_pc_sp(area, pc, 0);
        Self::resume_user(area)
    }
    fn switch_root(root: PhysAddr) {
        did(Did::SwitchedRoot(root));
    }
    fn idle_root() -> PhysAddr {
        IDLE_ROOT
    }
    fn flush_tlb() {
        did(Did::FlushedTlb);
    }
    fn flush_caches(piece: u64) -> bool {
        piece >= 40
    }
    fn sync_code(map: &FusedMap, at: PhysAddr, _: u64) {
        if let Some(act) = SYNCS.get() {
            act(map, at);
        }
    }
    fn zero_frame(map: &FusedMap, pa: PhysAddr) -> bool {
        map.zero_frame(pa)
    }
    fn root_entries() -> [u64; ROOT_ENTRIES] {
        [0; ROOT_ENTRIES]
    }
    fn clock_ns() -> u64 {
        CLOCK.set(CLOCK.get() + LOOK_NS.get());
        CLOCK.get()
    }
    fn set_timer(_: Option<u64>) {}
    fn wait() {
        resume_unwind(Box::new(Left::Asleep))
    }
    fn poll_interrupts() {
        if let Some(i) = PENDING.take() {
            current().local.note_interrupt(i);
        }
    }
    fn relax() {}
    fn mark<const WORD: u32>() {}
    fn ring(_: NodeId, cpu: CpuId, peer: u64) {
        did(Did::Rang { peer, cpu });
    }
    fn doorbell_id() -> u64 {
        0
    }
    fn call_code(_: PhysAddr) -> Option<u64> {
        None
    }
    fn code_returning(_: u8) -> [u64; 2] {
        [0; 2]
    }
    fn user_probe() -> dyad_machine::platform::UserProbe {
        // Where arguments and results are in an area; there is no code.
        dyad_machine::platform::UserProbe {
            code: &[],
            entered: 0,
            handler: 0,
            fp: 0,
            fp_entered: 0,
            fp_control: [0; 3],
            flags: [0; 2],
            forbidden_flags: 0,
            raised_flags: &[],
            step_flag: 0,
            raw: [PC, 23, THREAD_POINTER],
            returns_to_user_addresses_only: false,
            trap: &[],
            cache_maintenance: &[],
            privileged: &[],
            faults: &[],
            no_flags: 0,
            call: [0, 1, 2, 3, 4, 5],
            arguments: [12, 13, 14, 15, 16, 17],
            results: [6, 18, 19, 20, 21],
            preserved: &[],
            sp: SP,
            frame: FRAME_POINTER,
            registers: 22,
            spent: &[],
        }
    }
    fn run_user(_: &'static RegArea) {}
    fn leave_user() -> ! {
        panic!("there is no user mode on the host")
    }
    fn fault_kind(_: u64) -> dyad_machine::platform::FaultKind {
        dyad_machine::platform::FaultKind::Other
    }
    fn kernel_flags_are_right() -> bool {
        true
    }
    fn kernel_leaves(_: &mut dyn FnMut(u64, dyad_pgtbl::Level, dyad_pgtbl::Leaf)) {}
    /// Tests say themselves when a node looks.
    fn serial_write(bytes: &[u8]) {
        current().console.borrow_mut().extend_from_slice(bytes);
    }
    fn start_cpu(_: CpuId) -> Result<(), &'static str> {
        Err("there is one CPU only")
    }
    fn backtrace(_: &mut dyn FnMut(u64)) {}
    fn exit(code: u32) -> ! {
        resume_unwind(Box::new(Left::Exited(code)))
    }
}
