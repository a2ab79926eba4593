//! Slows logins down after failed ones: under one name, and from one address.
//!
//! # Invariants
//!
//! - At most [`FAILURES_MAX`] names and addresses are remembered; when there are more, the longest untouched is
//!   forgotten.
//! - A login waits at most [`WAIT_MAX`]; one that would have to wait longer is refused at once.
//! - From one address, logins after a failure come one after the other, however many connections it has. A name only
//!   delays: others must not be able to keep its owner out.

use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv6Addr, SocketAddr};
use std::sync::Mutex;
use std::time::Duration;

use quorate_env::{Instant, lock};

/// The delay after the first failure; it is doubled by each further one.
pub const FIRST_DELAY: Duration = Duration::from_millis(100);

/// The longest delay between two logins from one address.
pub const ADDRESS_DELAY_MAX: Duration = Duration::from_secs(5);

/// The longest delay of a login under one name.
pub const NAME_DELAY_MAX: Duration = Duration::from_secs(1);

/// The longest time for which a login waits.
pub const WAIT_MAX: Duration = Duration::from_secs(10);

/// For how long failures count.
pub const FAILURES_KEPT_FOR: Duration = Duration::from_secs(15 * 60);

/// The most names and addresses that are remembered.
pub const FAILURES_MAX: usize = 4_096;

/// What failures are counted for.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Place {
    Name(String),
    /// An IPv4 address, or the network of an IPv6 address, of which one host has many.
    Address(IpAddr),
    /// An address of another kind.
    Other(String),
}

/// The failures of one place.
#[derive(Debug)]
struct Failing {
    count: u32,
    /// Before this time no login is tried.
    next: Instant,
    /// The latest failure.
    last: Instant,
}

/// The failures of all places; see the module.
#[derive(Debug, Default)]
pub(super) struct Failures(Mutex<BTreeMap<Place, Failing>>);

impl Place {
    /// The most bytes of a name or an address that are kept.
    const BYTES_MAX: usize = 64;

    pub(super) fn name(name: &str) -> Self {
        Self::Name(shortened(name))
    }

    /// Returns the place of an address, `host:port`.
    pub(super) fn of(addr: &str) -> Self {
        let ip = addr.parse::<SocketAddr>().map(|addr| addr.ip()).or_else(|_| addr.parse::<IpAddr>());
        match ip.map(|ip| ip.to_canonical()) {
            Ok(IpAddr::V6(ip)) => {
                /// The part of an address that names its network.
                const NETWORK: u128 = u128::MAX << 64;
                Self::Address(IpAddr::V6(Ipv6Addr::from_bits(ip.to_bits() & NETWORK)))
            }
            Ok(ip) => Self::Address(ip),
            Err(_) => Self::Other(shortened(addr)),
        }
    }

    fn delay(&self, count: u32) -> Duration {
        let max = if matches!(self, Self::Name(_)) { NAME_DELAY_MAX } else { ADDRESS_DELAY_MAX };
        FIRST_DELAY.saturating_mul(2_u32.saturating_pow(count.saturating_sub(1))).min(max)
    }
}

fn shortened(text: &str) -> String {
    text.chars().take(Place::BYTES_MAX).collect()
}

impl Failures {
    /// Returns how long a login has to wait, and takes its turn; or, as the error, after what time to try again.
    pub(super) fn turn(&self, places: &[Place], now: Instant) -> Result<Duration, Duration> {
        let mut all = lock(&self.0);
        let mut wait = Duration::ZERO;
        for place in places {
            let Some(failing) = all.get(place).filter(|failing| failing.counts(now)) else {
                all.remove(place);
                continue;
            };
            wait = wait.max(failing.next.saturating_duration_since(now));
        }
        if wait > WAIT_MAX {
            return Err(wait);
        }
        for place in places.iter().filter(|place| !matches!(place, Place::Name(_))) {
            if let Some(failing) = all.get_mut(place) {
                failing.next = failing.next.max(now) + place.delay(failing.count);
            }
        }
        Ok(wait)
    }

    /// Counts a failed login.
    pub(super) fn failed(&self, places: &[Place], now: Instant) {
        let mut all = lock(&self.0);
        for place in places {
            if !all.contains_key(place) {
                make_room(&mut all);
            }
            let failing = all.entry(place.clone()).or_insert(Failing { count: 0, next: now, last: now });
            failing.count = failing.count.saturating_add(1);
            failing.next = failing.next.max(now + place.delay(failing.count));
            failing.last = now;
        }
    }

    /// Forgets the failures after a login.
    pub(super) fn succeeded(&self, places: &[Place]) {
        let mut all = lock(&self.0);
        for place in places {
            all.remove(place);
        }
    }
}

impl Failing {
    fn counts(&self, now: Instant) -> bool {
        now.saturating_duration_since(self.last) < FAILURES_KEPT_FOR
    }
}

/// Forgets the place that has not failed for longest, if there is no room for another one.
fn make_room(all: &mut BTreeMap<Place, Failing>) {
    if all.len() < FAILURES_MAX {
        return;
    }
    let oldest = all.iter().min_by_key(|(_, failing)| failing.last).map(|(place, _)| place.clone());
    if let Some(place) = oldest {
        all.remove(&place);
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]

    use super::*;

    const MS: Duration = Duration::from_millis(1);

    #[test]
    fn delays_double_up_to_their_bounds() {
        let failures = Failures::default();
        let places = [Place::name("ann"), Place::of("10.0.0.1:5000")];
        let (mut now, mut waits) = (Instant::now(), Vec::new());
        for _ in 0..9 {
            let wait = failures.turn(&places, now).unwrap();
            waits.push(wait.as_millis());
            now += wait;
            failures.failed(&places, now);
        }
        assert_eq!(waits, [0, 100, 200, 400, 800, 1600, 3200, 5000, 5000]);
        let of_name = failures.turn(&places[..1], now).unwrap();
        assert_eq!(of_name, NAME_DELAY_MAX);
        failures.succeeded(&places);
        assert_eq!(failures.turn(&places, now), Ok(Duration::ZERO));
    }

    /// Many connections of one host do not get more turns than one.
    #[test]
    fn logins_from_one_address_come_one_after_the_other() {
        let (failures, now) = (Failures::default(), Instant::now());
        let place = [Place::of("10.0.0.1:5000")];
        (0..5).for_each(|_| failures.failed(&place, now));
        let turns: Vec<_> = (0..9).map(|_| failures.turn(&place, now).map(|wait| wait.as_millis())).collect();
        let refused = Err(Duration::from_millis(11_200));
        let waits = [1600, 3200, 4800, 6400, 8000, 9600].map(Ok);
        assert_eq!(turns[..6], waits);
        assert_eq!(turns[6..], [refused; 3]);
        // The owner of a name that others try is delayed by a second at most.
        (0..50).for_each(|_| failures.failed(&[Place::name("ann")], now));
        assert_eq!(failures.turn(&[Place::name("ann"), Place::of("10.0.0.2:1")], now), Ok(NAME_DELAY_MAX));
    }

    #[test]
    fn failures_are_forgotten_and_bounded() {
        let (failures, now) = (Failures::default(), Instant::now());
        let place = [Place::name("ann")];
        failures.failed(&place, now);
        assert_eq!(failures.turn(&place, now + FAILURES_KEPT_FOR), Ok(Duration::ZERO));
        assert_eq!(lock(&failures.0).len(), 0);
        for number in 0..FAILURES_MAX + 10 {
            failures.failed(&[Place::name(&number.to_string())], now + MS * u32::try_from(number).unwrap());
        }
        assert_eq!(lock(&failures.0).len(), FAILURES_MAX);
        assert!(!lock(&failures.0).contains_key(&Place::name("9")));
        assert!(lock(&failures.0).contains_key(&Place::name("10")));
    }

    #[test]
    fn a_host_is_one_place() {
        assert_eq!(Place::of("10.0.0.1:1"), Place::of("10.0.0.1:2"));
        assert_eq!(Place::of("[::ffff:10.0.0.1]:1"), Place::of("10.0.0.1"));
        assert_eq!(Place::of("[2001:db8::1]:1"), Place::of("[2001:db8::ffff:1]:9"));
        assert!(Place::of("[2001:db8::1]:1") != Place::of("[2001:db8:0:1::1]:1"));
        assert_eq!(Place::of(&"x".repeat(99)), Place::Other("x".repeat(64)));
    }
}
