//! The invitation of a rank in its environment.
#![no_main]
use libfuzzer_sys::fuzz_target;
use trimtab_team::segment::meet::Invitation;

fuzz_target!(|text: &str| {
    if let Ok(invitation) = Invitation::parse(text) {
        assert_eq!(invitation.to_value(), text);
        assert!(invitation.rank < invitation.ranks && invitation.fd > 2);
    }
});
