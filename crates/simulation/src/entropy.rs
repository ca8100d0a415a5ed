//! Randomness and time of one thread: everything that the program draws or reads from the operating system comes from
//! the seed and from virtual time. A thread that was never seeded, such as a test runner's, gets the real ones.
//!
//! Two functions of libc are replaced, because their users (hash maps, uuids, `select!`, both clocks of std) offer no
//! other hook. Direct system calls aren't controlled.
#![allow(unsafe_code, reason = "functions of libc are taken over, in a crate that never ships")]

use std::cell::Cell;

use tokio::time::Instant;

/// Nanoseconds since a world began.
pub(crate) type Nanos = u64;

/// The wall clock when a world begins: 2026-01-01T00:00:00Z.
const EPOCH: u64 = 1_767_225_600;
/// The monotonic clock when a world begins, in seconds: far enough from zero to be subtracted from.
const BOOT: u64 = 1_000_000;
pub(crate) const SECOND: Nanos = 1_000_000_000;

thread_local! {
    static CHANCE: Cell<Option<u64>> = const { Cell::new(None) };
    static TIME: Cell<Option<Nanos>> = const { Cell::new(None) };
    static RUNNING: Cell<Option<Running>> = const { Cell::new(None) };
    static IS_READING: Cell<bool> = const { Cell::new(false) };
}

/// The host whose runtime is being polled: its clock may be ahead of the world's.
#[derive(Clone, Copy)]
pub(crate) struct Running {
    /// The time at which it began, and its runtime's clock at that time.
    pub(crate) began: Nanos,
    pub(crate) origin: Instant,
    /// The error of its wall clock, in nanoseconds.
    pub(crate) skew: i64,
}

/// Seeds this thread. Must be called before anything on the thread draws.
pub(crate) fn seed(seed: u64) {
    CHANCE.set(Some(mix(seed)));
    TIME.set(Some(0));
}

pub(crate) fn set_time(time: Nanos) {
    TIME.set(Some(time));
}

/// Makes the clocks follow a host until [`leave`].
pub(crate) fn enter(running: Running) {
    RUNNING.set(Some(running));
}

/// Ends the effect of [`enter`].
pub(crate) fn leave() {
    RUNNING.set(None);
}

/// Returns virtual time without the skew of a wall clock, or zero on a thread that isn't seeded.
pub(crate) fn now() -> Nanos {
    virtual_time().map_or(0, |(time, _)| time)
}

fn virtual_time() -> Option<(Nanos, i64)> {
    let fixed = TIME.get()?;
    // Outside of a runtime, tokio's clock is std's, which calls this function again.
    if IS_READING.get() {
        return Some((fixed, 0));
    }
    let Some(running) = RUNNING.get() else { return Some((fixed, 0)) };
    IS_READING.set(true);
    let elapsed = Instant::now().saturating_duration_since(running.origin);
    IS_READING.set(false);
    let elapsed = u64::try_from(elapsed.as_nanos()).unwrap_or(u64::MAX);
    Some((running.began.saturating_add(elapsed), running.skew))
}

/// Runs one round of splitmix64.
fn mix(state: u64) -> u64 {
    let mut z = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

/// # Safety
/// The same as libc's: `buffer` must be writable for `length` bytes.
#[unsafe(no_mangle)]
unsafe extern "C" fn getrandom(buffer: *mut libc::c_void, length: libc::size_t, flags: libc::c_uint) -> libc::ssize_t {
    let Some(mut state) = CHANCE.get() else {
        // SAFETY: the arguments are the caller's.
        let read = unsafe { libc::syscall(libc::SYS_getrandom, buffer, length, flags) };
        return libc::ssize_t::try_from(read).unwrap_or(-1);
    };
    // SAFETY: the caller promises that the buffer is as long.
    let bytes = unsafe { std::slice::from_raw_parts_mut(buffer.cast::<u8>(), length) };
    for chunk in bytes.chunks_mut(8) {
        state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        chunk.copy_from_slice(&mix(state).to_le_bytes()[..chunk.len()]);
    }
    CHANCE.set(Some(state));
    length.cast_signed()
}

/// # Safety
/// The same as libc's: `time` must be writable.
#[unsafe(no_mangle)]
unsafe extern "C" fn clock_gettime(clock: libc::clockid_t, time: *mut libc::timespec) -> libc::c_int {
    let Some((now, skew)) = virtual_time() else {
        // SAFETY: the arguments are the caller's.
        let read = unsafe { libc::syscall(libc::SYS_clock_gettime, clock, time) };
        return libc::c_int::try_from(read).unwrap_or(-1);
    };
    let now = match clock {
        libc::CLOCK_REALTIME | libc::CLOCK_REALTIME_COARSE => (EPOCH * SECOND + now).saturating_add_signed(skew),
        _ => BOOT * SECOND + now,
    };
    // SAFETY: the caller promises that it may be written.
    unsafe {
        (*time).tv_sec = (now / SECOND).cast_signed();
        (*time).tv_nsec = (now % SECOND).cast_signed();
    }
    0
}
