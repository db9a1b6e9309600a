"""Where the topic that an app feeds from was deleted and made anew, and releases of which a Faust table knows how far."""
