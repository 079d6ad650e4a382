"""What devices and serving engines are: profiles, their YAML and how they are found."""
