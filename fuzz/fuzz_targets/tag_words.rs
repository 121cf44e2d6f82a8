//! Words of the service's commands: addresses of guests, and names of machines and tasks.
#![no_main]
use libfuzzer_sys::fuzz_target;
use trimtab_agent::service::channel::{Channel, GuestPort};
use trimtab_linux::vcpus::VmName;

fuzz_target!(|text: &str| {
    if let Ok(channel) = text.parse::<Channel>() {
        let again = format!("{}={}", channel.vm, channel.address);
        assert_eq!(again.parse(), Ok(channel));
    }
    let Ok(port) = text.parse::<GuestPort>();
    assert_eq!(port.to_string().parse(), Ok(port));
    let _ = text.parse::<VmName>();
});
