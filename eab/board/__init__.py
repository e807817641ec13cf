"""The live picture: what Python sends (`messages`, `still`) and the JavaScript that draws it
(`static/`).
"""
