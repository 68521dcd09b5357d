//! The methods of [`Platform`](crate::Platform) that are identical on all machines: each calls a function of
//! a module of the `arch` crate, and the modules have the same names in all of them.

/// Methods of an implementation of [`Platform`](crate::Platform), in a crate with the modules `clock`,
/// `context`, `cpu`, `doorbell`, `exit`, `irq`, `mmu`, `serial`, `smp` and, with in-kernel tests, `ktest` and `traps`.
/// While the simulator's clock is on ([`fused`](crate::fused)), time, doorbells and output are the
/// simulator's.
#[macro_export]
macro_rules! platform_of_modules {
    () => {
        fn cpu() -> $crate::dyad_abi::CpuId {
            cpu::local().id()
        }
        fn local() -> &'static $crate::cpu::CpuLocal {
            cpu::local()
        }
        fn image_id() -> u64 {
            mmu::image_id()
        }
        fn current_area() -> &'static $crate::platform::RegArea {
            cpu::current_area()
        }
        fn complete_area(area: &$crate::platform::RegArea, word: u64, args: [u64; 5]) {
            context::complete(area, word, args);
        }
        fn init_regs(
            area: &$crate::platform::RegArea,
            entry: u64,
            stack_top: u64,
            arg: u64,
            tp: u64,
        ) {
            context::init_regs(area, entry, stack_top, arg, tp);
        }
        fn syscall_args(area: &$crate::platform::RegArea) -> [u64; 6] {
            context::syscall_args(area)
        }
        fn set_result(area: &$crate::platform::RegArea, status: u64, value: u64) {
            context::set_result(area, status, value);
        }
        fn user_pc_fp(area: &$crate::platform::RegArea) -> (u64, u64) {
            context::user_pc_fp(area)
        }
        fn user_pc_sp(area: &$crate::platform::RegArea) -> (u64, u64) {
            context::user_pc_sp(area)
        }
        fn set_user_pc_sp(area: &$crate::platform::RegArea, pc: u64, sp: u64) {
            context::set_user_pc_sp(area, pc, sp);
        }
        fn set_frame_pointer(area: &$crate::platform::RegArea, fp: u64) {
            context::set_frame_pointer(area, fp);
        }
        fn set_return(area: &$crate::platform::RegArea, pc: u64, sp: u64) {
            context::set_return(area, pc, sp);
        }
        fn set_arguments(area: &$crate::platform::RegArea, args: [u64; 6]) {
            context::set_arguments(area, args);
        }
        fn set_results(area: &$crate::platform::RegArea, status: u64, results: [u64; 4]) {
            context::set_results(area, status, results);
        }
        fn read_register(area: &$crate::platform::RegArea, n: u64) -> Option<u64> {
            context::read_register(area, n)
        }
        fn write_register(area: &$crate::platform::RegArea, n: u64, value: u64) -> bool {
            context::write_register(area, n, value)
        }
        fn dump_regs(area: &$crate::platform::RegArea, line: &mut dyn FnMut(&str, u64)) {
            context::dump_regs(area, line);
        }
        fn call_registers(area: &$crate::platform::RegArea) -> ([u64; 6], u64) {
            context::call_registers(area)
        }
        fn park(area: &$crate::platform::RegArea, parked: &$crate::platform::RegArea) {
            context::park(area, parked);
        }
        fn set_at_gate(
            area: &$crate::platform::RegArea,
            parked: &$crate::platform::RegArea,
            pc: u64,
            args: [u64; 6],
            function: u64,
        ) {
            context::set_at_gate(area, parked, pc, args, function);
        }
        fn call_fp(area: &$crate::platform::FpArea) -> ([u64; 8], [u64; 8]) {
            context::call_fp(area)
        }
        fn fp_on() {
            context::fp_on();
        }
        fn fp_off() {
            context::fp_off();
        }
        fn unload_fp(
            area: &$crate::platform::FpArea,
        ) -> [u64; $crate::dyad_abi::emulation::FLOAT_WORDS] {
            context::unload_fp(area)
        }
        fn load_fp(
            area: &$crate::platform::FpArea,
            words: &[u64; $crate::dyad_abi::emulation::FLOAT_WORDS],
        ) {
            context::load_fp(area, words);
        }
        fn reset_fp() {
            context::reset_fp();
        }
        fn save_fp(area: &$crate::platform::FpArea) {
            context::save_fp(area);
        }
        fn restore_fp(area: &$crate::platform::FpArea) {
            context::restore_fp(area);
        }
        fn switch_root(root: $crate::dyad_shm::PhysAddr) {
            mmu::switch_root(root);
        }
        fn idle_root() -> $crate::dyad_shm::PhysAddr {
            mmu::idle_root()
        }
        fn flush_tlb() {
            mmu::flush_user();
        }
        fn zero_frame(map: &$crate::dyad_shm::FusedMap, pa: $crate::dyad_shm::PhysAddr) -> bool {
            mmu::zero_frame(map, pa)
        }
        fn clock_ns() -> u64 {
            match $crate::fused::is_on() {
                true => $crate::fused::now_ns::<Self>(),
                false => clock::now_ns(),
            }
        }
        fn set_timer(deadline: Option<u64>) {
            clock::set_timer(deadline);
        }
        fn wait() {
            irq::wait();
        }
        fn poll_interrupts() {
            irq::take_pending();
        }
        fn ring(to: $crate::dyad_abi::NodeId, cpu: $crate::dyad_abi::CpuId, peer: u64) {
            match $crate::fused::is_on() {
                true => $crate::fused::ring::<Self>(to, cpu),
                false => doorbell::ring(peer, $crate::dyad_abi::boot::doorbell_vector(cpu) as u32),
            }
        }
        fn doorbell_id() -> u64 {
            match $crate::fused::is_on() {
                true => $crate::fused::doorbell_id(),
                false => doorbell::id(),
            }
        }
        #[cfg(feature = "ktest")]
        fn call_code(pa: $crate::dyad_shm::PhysAddr) -> Option<u64> {
            ktest::call_code(pa)
        }
        #[cfg(feature = "ktest")]
        fn code_returning(n: u8) -> [u64; 2] {
            ktest::code_returning(n)
        }
        #[cfg(feature = "ktest")]
        fn user_probe() -> dyad_core::ktest::UserProbe {
            ktest::user_probe()
        }
        #[cfg(feature = "ktest")]
        fn run_user(area: &'static $crate::platform::RegArea) {
            ktest::run_user(area);
        }
        #[cfg(feature = "ktest")]
        fn leave_user() -> ! {
            ktest::leave_user()
        }
        #[cfg(feature = "ktest")]
        fn fault_kind(raw: u64) -> $crate::platform::FaultKind {
            traps::fault_kind(raw)
        }
        #[cfg(feature = "ktest")]
        fn kernel_flags_are_right() -> bool {
            ktest::kernel_flags_are_right()
        }
        #[cfg(feature = "ktest")]
        fn kernel_leaves(
            f: &mut dyn FnMut(u64, $crate::dyad_pgtbl::Level, $crate::dyad_pgtbl::Leaf),
        ) {
            mmu::kernel_leaves(f);
        }
        fn serial_write(bytes: &[u8]) {
            match $crate::fused::is_on() {
                true => $crate::fused::write::<Self>(bytes),
                false => serial::write(bytes),
            }
        }
        fn start_cpu(cpu: $crate::dyad_abi::CpuId) -> Result<(), &'static str> {
            smp::start(cpu)
        }
        fn backtrace(each: &mut dyn FnMut(u64)) {
            cpu::backtrace(each);
        }
        fn exit(code: u32) -> ! {
            $crate::fused::exit::<Self>();
            exit::exit(code)
        }
    };
}
