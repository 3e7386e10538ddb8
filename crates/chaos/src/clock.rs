//! The boot-time clock, from which `bootMs` in the nodes' events is read: one clock for the whole record.

pub fn boot_us() -> u64 {
    let now = rustix::time::clock_gettime(rustix::time::ClockId::Boottime);
    u64::try_from(now.tv_sec).unwrap_or(0) * 1_000_000 + u64::try_from(now.tv_nsec).unwrap_or(0) / 1000
}

pub fn boot_ms() -> u64 {
    boot_us() / 1000
}
