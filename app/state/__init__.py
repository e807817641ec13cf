"""What one browser tab shows and remembers, in Streamlit's session state."""
